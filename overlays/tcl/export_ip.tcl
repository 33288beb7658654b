# Vitis HLS: the RTL as an IP for Vivado's catalog.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here hls_project.tcl]

phase export_ip {
    set arguments [arguments {project ip vlnv}]
    lassign [split [dict get $arguments vlnv] :] vendor library name version
    existing [list [solution_file $arguments syn report csynth.xml]]
    open_project [dict get $arguments project]
    open_solution solution
    export_design -format ip_catalog -rtl verilog -vendor $vendor -library $library -ipname $name -version $version
    set made [solution_file $arguments impl ip]
    existing [list [file join $made component.xml]]
    file delete -force [dict get $arguments ip]
    file copy $made [dict get $arguments ip]
}
