// Which columns of a key make a pair that rotary position embedding turns: neighbours, or columns of its two halves.
#pragma once

enum class Rotary { none, interleaved, halves };
