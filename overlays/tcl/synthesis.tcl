# Vivado: RTL to a netlist.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here vivado_project.tcl]

phase synthesis {
    set arguments [arguments {project reports jobs}]
    dict with arguments {}
    file mkdir $reports
    open_existing $project
    complete_run synth_1 $jobs
    open_run synth_1
    report_utilization -file [file join $reports utilization_synth.rpt]
    write_checkpoint -force [file join $project post_synth.dcp]
}
