# Stands in for Vitis HLS or Vivado: runs a script, writes down every command that Tcl itself does not have, and leaves
# the files behind that the tool would.
#
#   tclsh tcl_recorder.tcl TOOL SCRIPT -name value ...
#
# RECORD: the file for the commands; a record ends with RS, its words with US. Words that are absolute paths of nothing
# that exists begin with "missing:". REPORTS: folder of the reports the tool "writes". FAIL: name of a command that
# fails. STATUS, PROGRESS: what runs end with. MHZ: the clock the processor makes.

namespace eval fake {}
set fake::tool [lindex $argv 0]
set fake::script [lindex $argv 1]
set argv [lrange $argv 2 end]


rename unknown tcl_unknown
proc unknown {command args} {
    record $command $args
    if {$command eq $::env(FAIL)} {
        error "ERROR: \[Tool 1-1\] $command failed\nand more about it"
    }
    if {[info procs fake::${::fake::tool}::$command] ne ""} {
        return [fake::${::fake::tool}::$command {*}$args]
    }
    return ""
}

proc record {command words} {
    set channel [open $::env(RECORD) a]
    foreach word [list $command {*}$words] {
        if {[string match /* $word] && ![file exists $word]} {
            set word missing:$word
        }
        puts -nonewline $channel $word\x1f
    }
    puts -nonewline $channel \x1e
    close $channel
}

proc report {name path} {
    file mkdir [file dirname $path]
    file copy -force [file join $::env(REPORTS) $name] $path
}

proc touch {path} {
    file mkdir [file dirname $path]
    close [open $path w]
}

proc value_of {words option} {
    return [lindex $words [lsearch $words $option]+1]
}

namespace eval fake::hls {
    proc open_project {folder} {
        file mkdir $folder
        set ::fake::project $folder
    }
    proc set_top {name} {
        set ::fake::top $name
    }
    proc open_solution {name args} {
        if {![info exists ::fake::project]} {
            error "no project"
        }
        set ::fake::solution [file join $::fake::project $name]
        file mkdir $::fake::solution
    }
    proc csim_design {args} {
        report csim.log [file join $::fake::solution csim report ${::fake::top}_csim.log]
    }
    proc csynth_design {args} {
        foreach name {csynth.xml csynth.rpt fastcar_engine_csynth.rpt read_port_csynth.rpt} {
            report $name [file join $::fake::solution syn report $name]
        }
    }
    proc cosim_design {args} {
        report cosim.rpt [file join $::fake::solution sim report ${::fake::top}_cosim.rpt]
    }
    proc export_design {args} {
        touch [file join $::fake::solution impl ip component.xml]
    }
}

namespace eval fake::vivado {
    proc create_project {args} {
        set positions [lsearch -all -inline -not -glob $args -*]
        lassign $positions name folder
        set ::fake::project [file join $folder $name]
        touch $::fake::project.xpr
    }
    proc open_project {file} {
        if {![file exists $file]} {
            error "no such project"
        }
        set ::fake::project [file rootname $file]
    }
    proc get_board_parts {args} {
        return $::env(BOARD_PARTS)
    }
    proc create_bd_design {name} {
        set ::fake::design $name
    }
    foreach kind {cells pins intf_pins addr_spaces} {
        proc get_bd_$kind {name} {
            return /$name
        }
    }
    # The lower DDR, and what else a port of the processor leads to.
    proc get_bd_addr_segs {pattern} {
        if {[string match */SAXIGP?/\\* $pattern]} {
            set port [lindex {HPC0 HPC1 HP0 HP1 HP2 HP3} [string index $pattern end-2]]
            return [lmap part {DDR_LOW DDR_HIGH LPS_OCM QSPI} {string cat / [string range $pattern 0 end-1] ${port}_$part}]
        }
        return /[string map {* Reg} $pattern]
    }
    proc generate_target {args} {
        touch $::fake::project.gen/sources_1/bd/$::fake::design/hw_handoff/$::fake::design.hwh
    }
    proc launch_runs {run args} {
        set ::fake::step [expr {"-to_step" in $args ? [value_of $args -to_step] : ""}]
        if {$::fake::step eq "write_bitstream"} {
            touch $::fake::project.runs/$run/fastcar_00000000_wrapper.bit
        }
    }
    proc get_runs {run} {
        return $run
    }
    proc get_property {name object} {
        switch $name {
            STATUS { return $::env(STATUS) }
            PROGRESS { return $::env(PROGRESS) }
            CONFIG.PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ { return $::env(MHZ) }
            DIRECTORY { return $::fake::project.runs/$object }
        }
        error "no property $name in the recorder"
    }
    proc open_checkpoint {file} {
        if {![file exists $file]} {
            error "no such checkpoint"
        }
    }
    foreach {command name} {
        report_utilization utilization.rpt report_timing_summary timing.rpt report_power power.rpt
        report_drc drc.rpt report_route_status route_status.rpt
    } {
        proc $command {args} [string map [list NAME $name] {
            report NAME [value_of $args -file]
        }]
    }
    proc write_checkpoint {args} {
        touch [lindex $args end]
    }
    proc write_hw_platform {args} {
        touch [lindex $args end]
    }
}

source $fake::script
