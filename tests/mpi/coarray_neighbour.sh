#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The test of coarray_heat.sh, with another example.
. "$(dirname "$0")/coarray_heat.sh"
