# SPDX-License-Identifier: BSD-3-Clause
# Sums of random rows and of one column of a matrix that the package bigmemory keeps in a file. The
# script knows nothing of libummap:
#
#	Rscript rows.R FOLDER                      paged by the kernel
#	umrun --limit 16M Rscript rows.R FOLDER    paged by libummap, in 16 MiB
#
# The first run makes the matrix (80 MB) in FOLDER. A row has one number in each column, and columns
# are 400 KB apart: such accesses need memory for one segment of each column.

suppressMessages(library(bigmemory))

folder <- commandArgs(trailingOnly = TRUE)[1]
rows <- 50000
columns <- 200

make_matrix <- function() {
    m <- filebacked.big.matrix(rows, columns, type = "double", backingpath = folder,
                               backingfile = "matrix", descriptorfile = "matrix.desc")
    for (j in seq_len(columns)) m[, j] <- j + seq_len(rows) / rows
    flush(m)
}

if (!file.exists(file.path(folder, "matrix.desc"))) invisible(make_matrix())
m <- attach.big.matrix(file.path(folder, "matrix.desc"), readonly = TRUE)
set.seed(1)
cat(sum(m[sample(rows, 100), ]), "\n")
cat(sum(m[, 17]), "\n")
