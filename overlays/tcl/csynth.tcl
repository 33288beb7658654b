# Vitis HLS: C++ to RTL, after a C simulation that passed. Gates: clock, II of every loop.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here gates.tcl]
source [file join $here hls_project.tcl]

phase csynth {
    set required {project top part clock_ns uncertainty sources headers reports}
    set arguments [arguments $required {blackbox {} directives {}}]
    gate_csim [csim_log $arguments]
    open_design $arguments
    foreach file [existing [dict get $arguments directives]] {
        source $file
    }
    csynth_design
    set reports [dict get $arguments reports]
    set modules [file join $reports modules]
    file delete -force $modules
    file mkdir $modules
    foreach name {csynth.xml csynth.rpt} {
        file copy -force [solution_file $arguments syn report $name] [file join $reports $name]
    }
    foreach report [glob [solution_file $arguments syn report *_csynth.rpt]] {
        file copy -force $report $modules
    }
    # Copied first: who looks for the cause of a failure finds them.
    gate_clock [file join $reports csynth.xml]
    gate_violations [file join $reports csynth.xml]
    gate_ii [glob [file join $modules *_csynth.rpt]]
}
