// Arguments of instructions, and what they become when they are wrong.
#pragma once

#include <array>
#include <string_view>

namespace attune::mutation_tests {

struct WrongArgument {
  std::string_view call;
  std::size_t argument;       ///< counted from 0
  std::string_view mutation;  ///< its name
  std::string_view wrong;     ///< {} stands for the argument
};

// A descriptor counts 16 bytes; coordinates are head_dim, seqlen, head, batch.
constexpr std::array wrong_arguments{
    WrongArgument{"any_lane", 0, "of no lane", "false"},
    WrongArgument{"any_lane", 0, "of lane 0 alone", "lane_index() == 0 && ({})"},
    WrongArgument{"mbarrier_init", 1, "one arrival more", "({}) + 1"},
    WrongArgument{"mbarrier_init", 1, "one arrival fewer", "({}) - 1"},
    WrongArgument{"mbarrier_arrive", 0, "at the next mbarrier", "({}) + 8"},
    WrongArgument{"mbarrier_arrive_expect", 0, "at the next mbarrier", "({}) + 8"},
    WrongArgument{"mbarrier_arrive_expect", 1, "16 bytes more", "({}) + 16"},
    WrongArgument{"mbarrier_arrive_expect", 1, "16 bytes fewer", "({}) - 16"},
    WrongArgument{"mbarrier_wait", 0, "at the next mbarrier", "({}) + 8"},
    WrongArgument{"mbarrier_wait", 1, "of the other parity", "({}) ^ 1"},
    WrongArgument{"mbarrier_test", 0, "at the next mbarrier", "({}) + 8"},
    WrongArgument{"mbarrier_test", 1, "of the other parity", "({}) ^ 1"},
    WrongArgument{"named_barrier_wait", 0, "at the next barrier", "({}) + 1"},
    WrongArgument{"named_barrier_wait", 1, "of a warp more", "({}) + 32"},
    WrongArgument{"named_barrier_announce", 0, "at the next barrier", "({}) + 1"},
    WrongArgument{"named_barrier_announce", 1, "of a warp fewer", "({}) - 32"},
    WrongArgument{"named_barrier_any", 0, "at the next barrier", "({}) + 1"},
    WrongArgument{"named_barrier_any", 1, "of a warp fewer", "({}) - 32"},
    WrongArgument{"named_barrier_any", 2, "of nobody", "false"},
    WrongArgument{"named_barrier_any", 2, "of the first warp alone", "warp_index() % 4 == 0 && ({})"},
    WrongArgument{"load_box", 0, "1024 bytes further", "({}) + 1024"},
    WrongArgument{"load_box", 2, "for the next mbarrier", "({}) + 8"},
    WrongArgument{"load_box", 3, "8 columns to the right", "({}) + 8"},
    WrongArgument{"load_box", 4, "a row further down", "({}) + 1"},
    WrongArgument{"load_box", 5, "of the next head", "({}) + 1"},
    WrongArgument{"load_box", 6, "of the next sequence", "({}) + 1"},
    WrongArgument{"load_box_5d", 0, "1024 bytes further", "({}) + 1024"},
    WrongArgument{"load_box_5d", 2, "for the next mbarrier", "({}) + 8"},
    WrongArgument{"load_box_5d", 3, "8 columns to the right", "({}) + 8"},
    WrongArgument{"load_box_5d", 4, "a row further down", "({}) + 1"},
    WrongArgument{"load_box_5d", 5, "of the next head", "({}) + 1"},
    WrongArgument{"load_box_5d", 6, "of the next sequence", "({}) + 1"},
    WrongArgument{"load_box_5d", 7, "not as far in front", "({}) - 1"},
    WrongArgument{"matrix_descriptor", 0, "1024 bytes further", "({}) + 1024"},
    WrongArgument{"matrix_descriptor", 1, "1024 bytes more from run to run", "({}) + 1024"},
    WrongArgument{"wgmma", 2, "of B 1024 bytes further", "({}) + 64"},
    WrongArgument{"wgmma", 3, "accumulates the other way", "!({})"},
};

}  // namespace attune::mutation_tests
