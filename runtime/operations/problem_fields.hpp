// The tables of the fields of every operation's problem.
#pragma once

#include "runtime/operations/any_problem.hpp"
#include "runtime/operations/decode/problem_fields.hpp"
#include "runtime/operations/merge/problem_fields.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"
#include "runtime/operations/store/problem_fields.hpp"
