# Vivado: the block design from the lists in -design, validated, with its wrapper and handoff.
set here [file dirname [file normalize [info script]]]
source [file join $here arguments.tcl]
source [file join $here vivado_project.tcl]

# Cells and their parameters. The processor takes the board's preset first: memory, clocks and pins of the board.
proc create_cells {design} {
    dict for {instance vlnv} [dict get $design cells] {
        create_bd_cell -type ip -vlnv $vlnv $instance
    }
    set processor [get_bd_cells [dict get $design processor]]
    apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset "1"} $processor
    dict for {instance parameters} [dict get $design parameters] {
        set properties {}
        dict for {name value} $parameters {
            lappend properties CONFIG.$name $value
        }
        set_property -dict $properties [get_bd_cells $instance]
    }
}

proc connect_cells {design} {
    foreach pair [dict get $design interfaces] {
        lassign $pair master slave
        connect_bd_intf_net [get_bd_intf_pins $master] [get_bd_intf_pins $slave]
    }
    foreach net [dict get $design nets] {
        connect_bd_net {*}[lmap pin $net {get_bd_pins $pin}]
    }
}

# The processor divides its PLLs: not every clock that an engine can be synthesized for is one it can make.
proc gate_processor_clock {design} {
    set wanted [dict get $design clock_mhz]
    set made [get_property [dict get $design clock_property] [get_bd_cells [dict get $design processor]]]
    if {![string is double -strict $made] || abs($made - $wanted) > 0.05 * $wanted} {
        error "the processor makes \"$made\" MHz of the $wanted MHz wanted; choose a clock it can divide its PLLs to"
    }
    puts "clock: $made MHz"
}

# Each master reaches what the list says and nothing else: the siblings of its segments are excluded.
proc assign_addresses {design} {
    foreach row [dict get $design segments] {
        lassign $row space segment base size
        set space [get_bd_addr_spaces $space]
        assign_bd_address -offset $base -range $size -target_address_space $space [get_bd_addr_segs $segment] -force
        foreach sibling [get_bd_addr_segs [file dirname $segment]/*] {
            if {[file tail $sibling] ne [file tail $segment]} {
                exclude_bd_addr_seg -target_address_space $space $sibling
            }
        }
    }
}

phase block_design {
    set arguments [arguments {project part board_part ip design}]
    dict with arguments {}
    existing [list $design [file join $ip component.xml]]
    source $design
    set name [dict get $design name]

    file delete -force $project
    create_project -force $project_name $project -part $part
    if {[get_board_parts -quiet $board_part] eq ""} {
        error "Vivado has no files of the board $board_part; install them from the board store (xhub)"
    }
    set_property board_part $board_part [current_project]
    set_property ip_repo_paths $ip [current_project]
    update_ip_catalog

    create_bd_design $name
    create_cells $design
    connect_cells $design
    assign_addresses $design
    validate_bd_design
    gate_processor_clock $design
    save_bd_design

    generate_target all [get_files $name.bd]
    handoff_file $project
    make_wrapper -files [get_files $name.bd] -top -import
    set_property top ${name}_wrapper [current_fileset]

    set constraints [file join $project bitstream.xdc]
    set lines {}
    dict for {property value} [dict get $design bitstream] {
        lappend lines "set_property $property $value \[current_design\]\n"
    }
    write_file $constraints [join $lines ""]
    add_files -fileset constrs_1 $constraints
    update_compile_order -fileset sources_1
}
