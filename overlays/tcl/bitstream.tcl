# Vivado: the bitstream, and what goes with it under the same name: handoff and hardware platform.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here vivado_project.tcl]

phase bitstream {
    set arguments [arguments {project artifacts name}]
    dict with arguments {}
    file mkdir $artifacts
    open_existing $project
    complete_run impl_1 1 write_bitstream
    set made [only [file join [get_property DIRECTORY [get_runs impl_1]] *.bit]]
    file copy -force $made [file join $artifacts $name.bit]
    file copy -force [handoff_file $project] [file join $artifacts $name.hwh]
    open_run impl_1
    write_hw_platform -fixed -include_bit -force [file join $artifacts $name.xsa]
}
