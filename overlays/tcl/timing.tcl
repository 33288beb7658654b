# Vivado: the gate on the slack of the routed design, from its checkpoint alone.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here gates.tcl]

phase timing {
    set arguments [arguments {checkpoint reports}]
    dict with arguments {}
    file mkdir $reports
    existing [list $checkpoint]
    open_checkpoint $checkpoint
    report_timing_summary -file [file join $reports timing_gate.rpt]
    gate_timing [file join $reports timing_gate.rpt]
}
