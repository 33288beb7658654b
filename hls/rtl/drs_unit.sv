// Dynamic Resource Scheduling: deals the work of the computing rows to the processing groups of one weight port.
//
// A decision loads the index register (bit r: row r computes, else it replays) and fills the mapping registers with
// the rows that are dealt, ascending: the computing rows, or with reassign = 0 every row. With k of them, item
// i = wave * GROUPS + group is entry i mod k of the mapping, pair i div k, for i < k * pairs; it is busy if its row
// computes. So waves = ceil(k * pairs / GROUPS), and none where k is 0.
//
// Nothing divides. Counting to GROUPS once gives each group its first (entry, pair) and, at the end, GROUPS mod k and
// GROUPS div k; from then on a group adds that step each wave and wraps at k. i < k * pairs is pair < pairs.
//
// Cost of a decision: the first wave is out rows (one row a clock) + GROUPS (the count) + 2 clocks after ap_start, then
// one follows each clock while the receiver is ready, and ap_done the last: 42 + waves for 32 rows and 8 groups. Where
// k is 0, ap_done comes after rows + 1 clocks.
//
// A wave is {last, and for each group from the highest: busy, pair, row}; beyond the last item all are 0. wave_valid
// and wave_ready are an HLS FIFO's write and full_n: a wave passes where both are 1. Nothing passes while ap_ce is 0.
// rows 1 to ROWS and pairs 1 to MAX_PAIRS. C++ model: fastcar::deal, assign and waves, called by drs_unit.cpp.

`default_nettype none

module drs_unit #(
    parameter  int ROWS       = 32,
    parameter  int GROUPS     = 8,
    parameter  int MAX_PAIRS  = 64,
    localparam int ROW_BITS   = $clog2(ROWS),
    localparam int COUNT_BITS = $clog2(ROWS + 1),
    localparam int PAIR_BITS  = $clog2(MAX_PAIRS),
    localparam int PAIRS_BITS = $clog2(MAX_PAIRS + 1),
    localparam int ITEM_BITS  = 1 + PAIR_BITS + ROW_BITS,
    localparam int WAVE_BITS  = GROUPS * ITEM_BITS + 1
) (
    input  wire                      ap_clk,
    input  wire                      ap_rst,
    input  wire                      ap_ce,
    input  wire                      ap_start,
    input  wire                      ap_continue,
    output wire                      ap_ready,
    output wire                      ap_done,
    output wire                      ap_idle,
    input  wire  [         ROWS-1:0] index,
    input  wire  [   COUNT_BITS-1:0] rows,
    input  wire  [   PAIRS_BITS-1:0] pairs,
    input  wire                      reassign,
    output wire                      skip,
    output wire                      skip_ap_vld,
    output logic [   COUNT_BITS-1:0] count,
    output wire                      count_ap_vld,
    output logic [ROWS*ROW_BITS-1:0] mapping,
    output wire                      mapping_ap_vld,
    output logic [    WAVE_BITS-1:0] wave,
    output wire                      wave_valid,
    input  wire                      wave_ready
);
  // A pair advances by at most GROUPS beyond the last valid one.
  localparam int REACH_BITS = $clog2(MAX_PAIRS + GROUPS + 1);
  localparam int GROUP_BITS = $clog2(GROUPS + 1);

  localparam logic [2:0] IDLE = 0, SCAN = 1, SPREAD = 2, DEAL = 3, DRAIN = 4, DONE = 5;
  logic [2:0] state;

  logic [ROWS-1:0] flags;           // index register
  logic [COUNT_BITS-1:0] last_row;  // rows - 1
  logic [PAIRS_BITS-1:0] limit;     // pairs
  logic fixed;                      // reassign = 0
  logic [COUNT_BITS-1:0] row;       // scanned next
  logic [COUNT_BITS-1:0] entries;   // k
  logic [GROUP_BITS-1:0] counted;   // items counted
  logic full;                       // `wave` holds one
  wire moves = ap_ce && (!full || wave_ready);

  assign ap_ready       = state == IDLE && ap_start && ap_ce;
  assign ap_done        = state == DONE;
  assign ap_idle        = state == IDLE && !ap_start;
  assign skip           = count == '0;
  assign skip_ap_vld    = ap_done;
  assign count_ap_vld   = ap_done;
  assign mapping_ap_vld = ap_done;
  assign wave_valid     = full && ap_ce;

  // The step of all groups, and where each group is.
  logic [ROW_BITS-1:0] step_entry;
  logic [GROUP_BITS-1:0] step_pair;
  logic [GROUPS*ROW_BITS-1:0] entry;
  logic [GROUPS*REACH_BITS-1:0] pair;

  wire [ROW_BITS-1:0] next_step_entry;
  wire step_wraps = COUNT_BITS'(step_entry) + 1'b1 == entries;
  assign next_step_entry = step_wraps ? '0 : step_entry + 1'b1;

  wire [GROUPS*ROW_BITS-1:0] next_entry;
  wire [GROUPS*REACH_BITS-1:0] next_pair;
  wire [GROUPS*ITEM_BITS-1:0] items;
  generate
    for (genvar g = 0; g < GROUPS; g++) begin : group
      wire [ROW_BITS-1:0] at = entry[g*ROW_BITS+:ROW_BITS];
      wire [REACH_BITS-1:0] on = pair[g*REACH_BITS+:REACH_BITS];

      wire [ROW_BITS:0] moved = {1'b0, at} + {1'b0, step_entry};
      wire wraps = moved >= (ROW_BITS + 1)'(entries);
      assign next_entry[g*ROW_BITS+:ROW_BITS] = ROW_BITS'(wraps ? moved - (ROW_BITS + 1)'(entries) : moved);
      assign next_pair[g*REACH_BITS+:REACH_BITS] = on + REACH_BITS'(step_pair) + REACH_BITS'(wraps);

      // A dealt row computes, unless the mapping is fixed: there entry and row are the same.
      wire dealt_item = on < REACH_BITS'(limit);
      wire computes = !fixed || flags[at];
      assign items[g*ITEM_BITS+:ITEM_BITS] =
          dealt_item ? {computes, on[PAIR_BITS-1:0], mapping[at*ROW_BITS+:ROW_BITS]} : '0;
    end
  endgenerate

  // The first group starts the next wave beyond the end: this one is the last.
  wire last = next_pair[REACH_BITS-1:0] >= REACH_BITS'(limit);

  wire dealt = fixed || flags[row[ROW_BITS-1:0]];

  always_ff @(posedge ap_clk) begin
    if (ap_rst) begin
      state <= IDLE;
      full  <= 1'b0;
    end else if (ap_ce) begin
      case (state)
        IDLE:
        if (ap_start) begin
          state      <= SCAN;
          flags      <= index;
          last_row   <= rows - 1'b1;
          limit      <= pairs;
          fixed      <= !reassign;
          row        <= '0;
          count      <= '0;
          entries    <= '0;
          mapping    <= '0;
          counted    <= '0;
          step_entry <= '0;
          step_pair  <= '0;
        end
        SCAN: begin
          row   <= row + 1'b1;
          count <= count + COUNT_BITS'(flags[row[ROW_BITS-1:0]]);
          if (dealt) begin
            mapping[entries*ROW_BITS+:ROW_BITS] <= row[ROW_BITS-1:0];
            entries <= entries + 1'b1;
          end
          if (row == last_row) state <= dealt || entries != '0 ? SPREAD : DONE;
        end
        SPREAD: begin // item `counted` is the first of group `counted`
          entry      <= (GROUPS*ROW_BITS)'({step_entry, entry} >> ROW_BITS);
          pair       <= (GROUPS*REACH_BITS)'({REACH_BITS'(step_pair), pair} >> REACH_BITS);
          counted    <= counted + 1'b1;
          step_entry <= next_step_entry;
          step_pair  <= step_pair + GROUP_BITS'(step_wraps);
          if (counted == GROUP_BITS'(GROUPS - 1)) state <= DEAL;
        end
        DEAL:
        if (moves) begin
          full  <= 1'b1;
          wave  <= {last, items};
          entry <= next_entry;
          pair  <= next_pair;
          if (last) state <= DRAIN;
        end
        DRAIN:
        if (wave_ready) begin
          full  <= 1'b0;
          state <= DONE;
        end
        default: if (ap_continue) state <= IDLE;
      endcase
    end
  end
endmodule

`default_nettype wire
