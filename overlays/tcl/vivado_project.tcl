# The Vivado project as its phases find it, and its runs.
set project_name fastcar

proc open_existing {folder} {
    set file [file join $folder $::project_name.xpr]
    existing [list $file]
    open_project $file
}

# A run from its start, or from the step it stopped before, to the end of `step` or its own.
proc complete_run {run jobs {step {}}} {
    if {$step eq ""} {
        reset_runs $run
        launch_runs $run -jobs $jobs
    } else {
        if {[string match "$step*" [get_property STATUS [get_runs $run]]]} {
            reset_runs $run -from_step $step
        }
        launch_runs $run -to_step $step -jobs $jobs
    }
    wait_on_runs $run
    set status [get_property STATUS [get_runs $run]]
    if {[get_property PROGRESS [get_runs $run]] ne "100%"} {
        error "run $run ended with \"$status\"; see runme.log in [get_property DIRECTORY [get_runs $run]]"
    }
    puts "$run: $status"
}

# The handoff that generating the block design left.
proc handoff_file {folder} {
    return [only [file join $folder $::project_name.gen sources_1 bd * hw_handoff *.hwh]]
}
