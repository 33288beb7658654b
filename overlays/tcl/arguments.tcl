# What every phase's script starts with: its arguments, and an end that says why.
#
# A script takes `-name value` pairs in ::argv; the value of -sources, -headers, -bench and -data is a Tcl list. The
# tools differ in what they do after an error in a script, so a phase ends the tool itself: with exit 0, or with one
# sentence and exit 1.

# Run body; what goes wrong in it is the phase's end. The trace goes to the log, the sentence to whoever started it.
proc phase {name body} {
    set ::phase $name
    if {[catch {uplevel #0 $body} message details]} {
        puts [dict get $details -errorinfo]
        fail $message
    }
    puts "$name: done"
    exit 0
}

proc fail {sentence} {
    puts stderr "ERROR: $::phase: [lindex [split $sentence \n] 0]"
    exit 1
}

# A dictionary of the arguments by name, without the dash. required: names; optional: names and defaults.
proc arguments {required {optional {}}} {
    set names [concat $required [dict keys $optional]]
    set values $optional
    if {[llength $::argv] % 2} {
        error "[llength $::argv] words in the arguments; expected pairs of -name and value"
    }
    foreach {option value} $::argv {
        set name [string range $option 1 end]
        if {[string index $option 0] ne "-" || $name ni $names} {
            error "argument $option is not known; expected -[join $names {, -}]"
        }
        if {[info exists given($name)]} {
            error "argument $option is there twice; give it once"
        }
        set given($name) true
        dict set values $name $value
    }
    foreach name $required {
        if {![info exists given($name)] || [dict get $values $name] eq ""} {
            error "argument -$name is missing or empty; expected -[join $required {, -}]"
        }
    }
    return $values
}

# The files, if all of them are there.
proc existing {files} {
    foreach file $files {
        if {![file exists $file]} {
            error "$file does not exist; an earlier phase makes it, or the argument is wrong"
        }
    }
    return $files
}

# The only file that matches the pattern.
proc only {pattern} {
    set found [glob -nocomplain $pattern]
    if {[llength $found] != 1} {
        error "[llength $found] files match $pattern; expected one"
    }
    return [lindex $found 0]
}

proc read_file {path} {
    set channel [open [lindex [existing [list $path]] 0]]
    set text [read $channel]
    close $channel
    return $text
}

proc write_file {path text} {
    set channel [open $path w]
    puts -nonewline $channel $text
    close $channel
}
