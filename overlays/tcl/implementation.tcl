# Vivado: placed and routed. Gates: design rules, routing; timing has a phase of its own.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here gates.tcl]
source [file join $here vivado_project.tcl]

phase implementation {
    set arguments [arguments {project reports jobs}]
    dict with arguments {}
    file mkdir $reports
    open_existing $project
    complete_run impl_1 $jobs
    open_run impl_1
    report_utilization -file [file join $reports utilization_placed.rpt]
    report_timing_summary -file [file join $reports timing_summary_routed.rpt]
    report_power -file [file join $reports power_routed.rpt]
    report_drc -file [file join $reports drc_routed.rpt]
    report_route_status -file [file join $reports route_status.rpt]
    gate_route [file join $reports route_status.rpt]
    gate_drc [file join $reports drc_routed.rpt]
    # Last: a design that did not pass leaves no checkpoint.
    write_checkpoint -force [file join $project post_route.dcp]
}
