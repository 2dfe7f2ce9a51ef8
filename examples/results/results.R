#!/usr/bin/env Rscript
# Opens what a study has measured, with R: Rscript results.R DIR RESPONSE FACTOR
#
# Prints the mean of RESPONSE by FACTOR over the trials that count, and Kruskal-Wallis, which must be
# what `weir prove stats DIR/results.csv --value RESPONSE --by FACTOR` says of the same rows. Where
# the package nanoparquet or arrow is installed, results.parquet is read as well and compared.

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
response <- arguments[2]
factor_name <- arguments[3]
results <- read.csv(file.path(folder, "results.csv"), na.strings = "", check.names = FALSE)
counted <- results[results$counts == "yes", ]
print(aggregate(counted[[response]], list(level = counted[[factor_name]]), mean))
print(kruskal.test(counted[[response]], as.factor(counted[[factor_name]])))
file <- file.path(folder, "results.parquet")
parquet <- if (requireNamespace("nanoparquet", quietly = TRUE)) {
  nanoparquet::read_parquet(file)
} else if (requireNamespace("arrow", quietly = TRUE)) {
  as.data.frame(arrow::read_parquet(file))
}
if (is.null(parquet)) {
  cat("results.parquet was not read: install.packages(\"nanoparquet\")\n")
} else {
  stopifnot(isTRUE(all.equal(parquet[[response]], results[[response]])))
  cat("results.parquet agrees:", nrow(parquet), "rows,", ncol(parquet), "columns\n")
}
