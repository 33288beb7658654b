// One DSP48E2: two int8 products by one factor, added to the sum of the DSP before it in the chain.
//
//   sum_out = sum_in + (weight0 + 2^18 * weight1) * x
//
// The pre-adder (A + D, 27 bits) packs the weights, the multiplier (27 x 18) makes both products at once, the
// post-adder takes the neighbour's sum over the cascade. Every register is one the slice has: A, D and B, then AD and
// the second B, then M, then P. None is reset, which the slice would do but nothing needs: the valid bits tell.
//
// A chain adds one product a clock, so the DSP at place STAGE sees its operands STAGE clocks late.

`default_nettype none

module packed_dsp #(
    parameter int STAGE = 0 // place in the chain; the first adds to nothing
) (
    input  wire               clk,
    input  wire               enable,
    input  wire  signed [7:0] weight0,
    input  wire  signed [7:0] weight1,
    input  wire  signed [8:0] x,
    input  wire  signed [35:0] sum_in, // ignored by the first of a chain
    output logic signed [35:0] sum_out
);
  localparam int FIELD = 18; // weight1's products start at this bit
  localparam int OPERANDS = 8 + 8 + 9;

  wire [OPERANDS-1:0] skewed;

  generate
    if (STAGE == 0) begin : first
      assign skewed = {weight0, weight1, x};
    end else begin : later
      logic [STAGE*OPERANDS-1:0] line;
      for (genvar i = 0; i < STAGE; i++) begin : place
        if (i == 0) begin : enter
          always_ff @(posedge clk) if (enable) line[0+:OPERANDS] <= {weight0, weight1, x};
        end else begin : move
          always_ff @(posedge clk)
            if (enable) line[i*OPERANDS+:OPERANDS] <= line[(i-1)*OPERANDS+:OPERANDS];
        end
      end
      assign skewed = line[(STAGE-1)*OPERANDS+:OPERANDS];
    end
  endgenerate

  logic signed [26:0] a, d, ad;
  logic signed [8:0] b1, b2;
  (* use_dsp = "yes" *) logic signed [35:0] m;

  always_ff @(posedge clk) begin
    if (enable) begin
      a  <= 27'($signed(skewed[24:17]));
      d  <= {skewed[16], skewed[16:9], {FIELD{1'b0}}};
      b1 <= skewed[8:0];
      ad <= a + d;
      b2 <= b1;
      m  <= ad * b2;
    end
  end

  generate
    if (STAGE == 0) begin : head
      always_ff @(posedge clk) if (enable) sum_out <= m;
      wire unused = &{1'b0, sum_in};
    end else begin : body
      always_ff @(posedge clk) if (enable) sum_out <= sum_in + m;
    end
  endgenerate
endmodule

`default_nettype wire
