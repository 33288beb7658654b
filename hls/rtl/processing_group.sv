// Two dot products of 16 lanes a clock in 16 DSP48E2, exact for all operands.
//
//   sum0 = sum_i weights0[i] * x[i],   sum1 = sum_i weights1[i] * x[i]
//
// Lane i is bits 8 i + 7 to 8 i. Weights are int8; x is uint8 where x_unsigned is 1, else int8, and enters the
// multiplier with nine bits. |sum| <= 16 * 128 * 255 = 522240 < 2^19.
//
// Each DSP multiplies weight0 + 2^18 * weight1 by x. A chain of four adds at most 4 * 128 * 255 = 130560 < 2^17 to the
// low field, so its 18 bits are the exact signed sum; where they are negative they have borrowed one from the high
// field, which the separation gives back. Eight in a chain would overflow, hence four chains and an adder tree.
//
// Control is ap_ctrl_chain. A result held back by ap_continue stops the whole pipeline, as does a low ap_ce.
// C++ model: fastcar::processing_group, called by processing_group.cpp.

`default_nettype none

module processing_group (
    input  wire                ap_clk,
    input  wire                ap_rst,
    input  wire                ap_ce,
    input  wire                ap_start,
    input  wire                ap_continue,
    output wire                ap_ready,
    output wire                ap_done,
    output wire                ap_idle,
    input  wire        [127:0] weights0,
    input  wire        [127:0] weights1,
    input  wire        [127:0] x,
    input  wire                x_unsigned,
    output logic signed [19:0] sum0,
    output wire                sum0_ap_vld,
    output logic signed [19:0] sum1,
    output wire                sum1_ap_vld
);
  localparam int CHAINS = 4;
  localparam int CHAIN = 4;   // DSPs in a chain
  localparam int FIELD = 18;  // bits of one packed sum
  localparam int LATENCY = 3 + CHAIN + 3; // operands, pre-adder, product; one sum a DSP; separate, pairs, all

  logic [LATENCY-1:0] valid;
  wire enable = ap_ce && !(ap_done && !ap_continue);

  always_ff @(posedge ap_clk) begin
    if (ap_rst) valid <= '0;
    else if (enable) valid <= {valid[LATENCY-2:0], ap_start};
  end

  assign ap_ready    = ap_start && enable;
  assign ap_done     = valid[LATENCY-1];
  assign ap_idle     = !ap_start && valid == '0;
  assign sum0_ap_vld = ap_done;
  assign sum1_ap_vld = ap_done;

  wire signed [FIELD-1:0] low[CHAINS];
  wire signed [FIELD-1:0] high[CHAINS];

  generate
    for (genvar c = 0; c < CHAINS; c++) begin : chain
      wire signed [2*FIELD-1:0] sums[CHAIN+1];
      assign sums[0] = '0;
      for (genvar s = 0; s < CHAIN; s++) begin : stage
        localparam int BIT = 8 * (c * CHAIN + s);
        packed_dsp #(
            .STAGE(s)
        ) dsp (
            .clk(ap_clk),
            .enable(enable),
            .weight0(weights0[BIT+:8]),
            .weight1(weights1[BIT+:8]),
            .x({!x_unsigned && x[BIT+7], x[BIT+:8]}),
            .sum_in(sums[s]),
            .sum_out(sums[s+1])
        );
      end
      assign low[c]  = sums[CHAIN][FIELD-1:0];
      assign high[c] = sums[CHAIN][2*FIELD-1:FIELD];
    end
  endgenerate

  logic signed [FIELD-1:0] dot0[CHAINS];
  logic signed [FIELD-1:0] dot1[CHAINS];
  logic signed [FIELD:0] pair0[2];
  logic signed [FIELD:0] pair1[2];

  always_ff @(posedge ap_clk) begin
    if (enable) begin
      for (int c = 0; c < CHAINS; c++) begin
        dot0[c] <= low[c];
        dot1[c] <= high[c] + FIELD'({1'b0, low[c][FIELD-1]}); // what a negative low field borrowed
      end
      for (int i = 0; i < 2; i++) begin
        pair0[i] <= dot0[2*i] + dot0[2*i+1];
        pair1[i] <= dot1[2*i] + dot1[2*i+1];
      end
      sum0 <= pair0[0] + pair0[1];
      sum1 <= pair1[0] + pair1[1];
    end
  end
endmodule

`default_nettype wire
