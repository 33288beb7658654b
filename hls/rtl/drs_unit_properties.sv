// What is proved of drs_unit: one decision from any idle state, whatever index, rows, pairs and mapping.
//
// The first clock finds the unit idle with every other register free, and the decision ends in such a state: what holds
// for one decision therefore holds for each of a sequence. ap_ce, wave_ready and ap_continue are free, but at most
// STALLS clocks of the whole decision are lost to them.
//
//   starts           an idle unit takes a decision at once
//   served_once      a row and a pair, chosen freely, are served once if the row computes, else never
//   no_replay        no busy item names a row that replays, a row beyond `rows` or a pair beyond `pairs`
//   skipped          at the end skip is 1 exactly if no row computes, and count is their number
//   last             the wave that reaches k * pairs items is marked as the last, no other
//   none_after_last  and none follows
//   complete         ap_done comes after the last wave, or without one where k is 0
//   cost             rows + GROUPS + 2 + waves clocks without a stall after the start, or rows + 1 without a wave
//   finishes         ap_done comes, and is taken, by the clock that cost and STALLS allow: no deadlock
//   idle_again       then the unit is as it was found

`default_nettype none

module drs_unit_properties #(
    parameter  int ROWS       = 4,
    parameter  int GROUPS     = 2,
    parameter  int MAX_PAIRS  = 2,
    parameter  int STALLS     = 2,
    localparam int ROW_BITS   = $clog2(ROWS),
    localparam int COUNT_BITS = $clog2(ROWS + 1),
    localparam int PAIR_BITS  = $clog2(MAX_PAIRS),
    localparam int PAIRS_BITS = $clog2(MAX_PAIRS + 1),
    localparam int ITEM_BITS  = 1 + PAIR_BITS + ROW_BITS
) (
    input wire clk
);
  (* anyconst *) logic [ROWS-1:0] index;
  (* anyconst *) logic [COUNT_BITS-1:0] rows;
  (* anyconst *) logic [PAIRS_BITS-1:0] pairs;
  (* anyconst *) logic reassign;
  (* anyconst *) logic [ROW_BITS-1:0] some_row;
  (* anyconst *) logic [PAIR_BITS-1:0] some_pair;
  (* anyseq *) logic ce;
  (* anyseq *) logic ready;
  (* anyseq *) logic continues;

  logic [7:0] clocks = 0;  // since the decision began, itself clock 0
  logic [7:0] stalls = 0;
  logic [7:0] active = 0;  // clocks without a stall
  logic [7:0] taken = 0;   // waves
  logic [7:0] served = 0;  // times the chosen row and pair were
  logic ended = 0;         // the last wave was taken
  logic over = 0;          // ap_done was accepted

  wire ap_ready, ap_done, ap_idle, skip, wave_valid;
  wire [2:0] valids;
  wire [COUNT_BITS-1:0] count;
  wire [ROWS*ROW_BITS-1:0] mapping;
  wire [GROUPS*ITEM_BITS:0] wave;

  drs_unit #(
      .ROWS(ROWS),
      .GROUPS(GROUPS),
      .MAX_PAIRS(MAX_PAIRS)
  ) unit (
      .ap_clk(clk),
      .ap_rst(1'b0),
      .ap_ce(ce),
      .ap_start(clocks == 1),
      .ap_continue(continues),
      .ap_ready(ap_ready),
      .ap_done(ap_done),
      .ap_idle(ap_idle),
      .index(index),
      .rows(rows),
      .pairs(pairs),
      .reassign(reassign),
      .skip(skip),
      .skip_ap_vld(valids[0]),
      .count(count),
      .count_ap_vld(valids[1]),
      .mapping(mapping),
      .mapping_ap_vld(valids[2]),
      .wave(wave),
      .wave_valid(wave_valid),
      .wave_ready(ready)
  );

  // What the definition says of this decision.
  logic [7:0] computing;
  always_comb begin
    computing = 0;
    for (int r = 0; r < ROWS; r++) if (r < rows && index[r]) computing = computing + 1;
  end
  wire [7:0] k = reassign ? computing : 8'(rows);
  wire [7:0] items = k * 8'(pairs);

  wire passes = wave_valid && ready;
  wire stalled = !ce || (wave_valid && !ready) || (ap_done && !continues);

  // A wave's items: which are busy, which of those are wrong, how many serve the chosen row and pair.
  logic [7:0] chosen;
  logic wrong;
  always_comb begin
    chosen = 0;
    wrong = 0;
    for (int g = 0; g < GROUPS; g++) begin
      if (wave[g*ITEM_BITS+ITEM_BITS-1]) begin
        if (wave[g*ITEM_BITS+:ROW_BITS] >= rows || !index[wave[g*ITEM_BITS+:ROW_BITS]]) wrong = 1;
        if (wave[g*ITEM_BITS+ROW_BITS+:PAIR_BITS] >= pairs) wrong = 1;
        if (wave[g*ITEM_BITS+:ROW_BITS] == some_row && wave[g*ITEM_BITS+ROW_BITS+:PAIR_BITS] == some_pair)
          chosen = chosen + 1;
      end
    end
  end

  always_ff @(posedge clk) begin
    assume (rows >= 1 && rows <= ROWS && pairs >= 1 && pairs <= MAX_PAIRS);
    assume (some_row < rows && some_pair < pairs);
    assume (clocks > 1 || (ce && ready)); // clock 0 shows the state, clock 1 starts
    assume (stalls <= STALLS);
    if (clocks == 0) assume (ap_idle && !wave_valid && !ap_done);
    if (clocks == 1) starts : assert (ap_ready);

    if (clocks != 8'hFF) clocks <= clocks + 1;
    if (clocks > 1 && !over) begin
      stalls <= stalls + 8'(stalled);
      active <= active + 8'(!stalled);
      if (passes) begin
        taken  <= taken + 1;
        served <= served + chosen;
        ended  <= wave[GROUPS*ITEM_BITS];
        no_replay : assert (!wrong);
        none_after_last : assert (!ended);
        last : assert (wave[GROUPS*ITEM_BITS] == ((taken + 1) * GROUPS >= items));
      end
      if (ap_done) begin
        served_once : assert (served == 8'(index[some_row]));
        skipped : assert (skip == (computing == 0) && count == computing && valids == 3'b111);
        complete : assert (ended == (items != 0));
        cost : assert (active == rows + (items == 0 ? 0 : GROUPS + 1 + taken));
        if (continues && ce) over <= 1;
      end
    end
    if (over) idle_again : assert (ap_idle && !wave_valid && !ap_done);
    if (clocks > 1 + ROWS + GROUPS + 2 + (ROWS * MAX_PAIRS + GROUPS - 1) / GROUPS + STALLS) finishes : assert (over);
  end
endmodule

`default_nettype wire
