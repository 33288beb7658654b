# The Vitis HLS project as its phases find it: sources, part and clock from the arguments.

# Options of the compiler for source and test bench. hls/build.py compiles the same files with the same ones.
# -DFASTCAR_SIMULATION: streams of real depth and processes that run at once, where synthesis has its own of both.
set language {-std=c++17}
set simulation {-DFASTCAR_SIMULATION -ffp-contract=off}

proc compiler_flags {arguments} {
    set flags $::language
    foreach folder [existing [dict get $arguments headers]] {
        if {[regexp {\s} $folder]} {
            error "$folder has a space, which a compiler option cannot hold; build in a folder without"
        }
        append flags " -I$folder"
    }
    if {[dict get $arguments blackbox] ne ""} {
        append flags " -DFASTCAR_RTL_BLACKBOX"
    }
    return $flags
}

# The project open with its design described; what other phases left in it stays.
proc open_design {arguments} {
    open_project [dict get $arguments project]
    set_top [dict get $arguments top]
    set flags [compiler_flags $arguments]
    foreach source [existing [dict get $arguments sources]] {
        add_files $source -cflags $flags -csimflags "$flags $::simulation"
    }
    if {[dict get $arguments blackbox] ne ""} {
        existing [list [dict get $arguments blackbox]]
        add_files -blackbox [dict get $arguments blackbox]
    }
    open_solution solution -flow_target vivado
    set_part [dict get $arguments part]
    create_clock -period [dict get $arguments clock_ns] -name default
    set_clock_uncertainty [dict get $arguments uncertainty]
}

# The test bench, which is never synthesized.
proc add_bench {arguments} {
    set flags "[compiler_flags $arguments] $::simulation"
    foreach source [existing [dict get $arguments bench]] {
        add_files -tb $source -cflags $flags
    }
    existing [dict get $arguments data]
}

# A file below the solution.
proc solution_file {arguments args} {
    return [file join [dict get $arguments project] solution {*}$args]
}

proc csim_log {arguments} {
    return [solution_file $arguments csim report [dict get $arguments top]_csim.log]
}
