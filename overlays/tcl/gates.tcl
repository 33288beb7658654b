# Gates: read a report, and raise an error that says which figure is not as it must be. A report without the figure is
# an error too.

# C simulation: the log of Vitis HLS ends with the number of errors.
proc gate_csim {log} {
    if {![regexp {CSim done with 0 errors} [read_file $log]]} {
        error "C simulation failed or did not end; see $log"
    }
}

# Clock of csynth.xml: the estimate must leave the uncertainty free, as the tool itself demands. Period and uncertainty
# are there with two decimals, so their difference may be off by one of the last.
proc gate_clock {report} {
    set text [read_file $report]
    foreach name {TargetClockPeriod ClockUncertainty EstimatedClockPeriod} {
        if {![regexp "<$name>\\s*(\[0-9.\]+)\\s*</$name>" $text -> value]} {
            error "$report has no $name"
        }
        set $name $value
    }
    set limit [expr {$TargetClockPeriod - $ClockUncertainty}]
    if {$EstimatedClockPeriod > $limit + 0.01} {
        error [format "clock missed: %s ns estimated, %.3f ns allowed (period %s ns less %s ns uncertainty)" \
            $EstimatedClockPeriod $limit $TargetClockPeriod $ClockUncertainty]
    }
}

# What csynth.xml lists as violated: of a module or a loop, II or timing; "-" is none.
proc gate_violations {report} {
    set text [read_file $report]
    foreach {whole kind value} [regexp -all -inline {<(IssueType|ViolationType)>\s*([^<]*?)\s*</\1>} $text] {
        if {$value ni {{} -}} {
            set place "a place it does not name"
            set rest [string range $text [string first $whole $text] end]
            regexp {<SourceLocation>\s*([^<]+?)\s*</SourceLocation>} $rest -> place
            error "$value at $place; see $report"
        }
    }
}

# II of every pipelined loop in the tables of the modules' reports: achieved against target.
proc gate_ii {reports} {
    set loops 0
    foreach report $reports {
        foreach line [split [read_file $report] \n] {
            set cells [lmap cell [split $line |] {string trim $cell}]
            if {[llength $cells] != 10 || ![string match yes* [lindex $cells 8]]} continue
            lassign [lrange $cells 1 6] loop minimum maximum latency achieved target
            if {![string is integer -strict $achieved] || ![string is integer -strict $target]} continue
            incr loops
            if {$achieved > $target} {
                set loop [string trim $loop "- +"]
                error "II missed: loop $loop achieves $achieved, target $target; see $report"
            }
        }
    }
    if {!$loops} {
        error "no pipelined loop in [llength $reports] reports; expected the tables of csynth"
    }
    puts "II reached in $loops pipelined loops"
}

# Co-simulation: the row of the language it ran in.
proc gate_cosim {report} {
    if {![regexp -line {^\|\s*Verilog\s*\|\s*(\S+)\s*\|} [read_file $report] -> status]} {
        error "$report has no result for Verilog"
    }
    if {$status ne "Pass"} {
        error "co-simulation: RTL and C++ differ or it did not end (status $status); see $report"
    }
}

# Design rules: rows of the summary with a severity that stops a bitstream.
proc gate_drc {report} {
    set text [read_file $report]
    if {![regexp {(Violations|Checks) found:\s*\d+} $text]} {
        error "$report is no report of design rules"
    }
    set row {^\|\s*(\S+)\s*\|\s*(?:Error|Fatal)\s*\|\s*([^|]*?)\s*\|\s*(\d+)}
    if {[regexp -line $row $text -> rule about count]} {
        error "design rule $rule violated $count times ($about); see $report"
    }
}

# Routing: every net that needs it, without errors.
proc gate_route {report} {
    set text [read_file $report]
    foreach {name label} {
        routable {# of routable nets}
        routed {# of fully routed nets}
        errors {# of nets with routing errors}
    } {
        if {![regexp "$label\[. \]*:\\s*(\\d+)\\s*:" $text -> $name]} {
            error "$report does not say \"$label\""
        }
    }
    if {$routed != $routable || $errors} {
        error "[expr {$routable - $routed}] nets unrouted, $errors with errors, of $routable; see $report"
    }
}

# Timing summary: worst slack of setup, hold and pulse width. NA means that nothing is constrained.
proc gate_timing {report} {
    set number {(-?[0-9.]+|NA)}
    set columns [join [lrepeat 3 "$number\\s+$number\\s+(\\d+|NA)\\s+(\\d+|NA)"] {\s+}]
    if {![regexp -line "^\\s*$columns\\s*$" [read_file $report] -> wns t1 f1 e1 whs t2 f2 e2 wpws t3 f3 e3]} {
        error "$report has no design timing summary"
    }
    foreach {name slack} [list setup $wns hold $whs {pulse width} $wpws] {
        if {$slack eq "NA"} {
            error "no path is constrained for $name; see $report"
        }
        if {$slack < 0} {
            error "timing missed: $name slack $slack ns; see $report"
        }
    }
    puts "worst slack: setup $wns ns, hold $whs ns, pulse width $wpws ns"
}
