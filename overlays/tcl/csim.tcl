# Vitis HLS: C simulation of the engine against its golden starts. What was synthesized before stays: other golden
# starts are no reason to synthesize again.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here gates.tcl]
source [file join $here hls_project.tcl]

phase csim {
    set arguments [arguments {project top part clock_ns uncertainty sources headers bench data} {blackbox {}}]
    file delete -force [solution_file $arguments csim]
    open_design $arguments
    add_bench $arguments
    csim_design -clean -argv [dict get $arguments data] -ldflags -pthread
    gate_csim [csim_log $arguments]
}
