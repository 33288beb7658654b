# Vitis HLS: the golden starts on the RTL that csynth made.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here gates.tcl]
source [file join $here hls_project.tcl]

phase cosim {
    set arguments [arguments {project top part clock_ns uncertainty sources headers bench data reports} {blackbox {}}]
    existing [list [solution_file $arguments syn report csynth.xml]]
    open_design $arguments
    add_bench $arguments
    cosim_design -rtl verilog -argv [dict get $arguments data] -ldflags -pthread
    set report [file join [dict get $arguments reports] cosim.rpt]
    file mkdir [file dirname $report]
    file copy -force [solution_file $arguments sim report [dict get $arguments top]_cosim.rpt] $report
    gate_cosim $report
}
