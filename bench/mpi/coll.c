/* How long a collective operation of MPI takes: from the moment when all ranks are ready until the last of them is done.
 *
 * usage: coll OPERATION BYTES PASSES, with p2p (there and back between ranks 0 and 1), bcast, gather, reduce or allreduce.
 * Rank 0 prints a line for each pass: its milliseconds, and the seconds that all cores of the machine worked meanwhile, whoever they
 * worked for. The first pass is not counted and not printed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float *make(long count, float value) {
  float *array = malloc(count * sizeof *array);
  if (!array) MPI_Abort(MPI_COMM_WORLD, 1);
  for (long at = 0; at < count; at++) array[at] = value;
  return array;
}

/* Seconds in which cores had nothing to do, or were not there since their hypervisor used them otherwise. */
static double unused(void) {
  long long user, nice, system, idle, disk, interrupts, soft, stolen;
  FILE *stat = fopen("/proc/stat", "r");
  if (!stat || fscanf(stat, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle, &disk, &interrupts, &soft,
                      &stolen) != 8)
    MPI_Abort(MPI_COMM_WORLD, 3);
  fclose(stat);
  return (double)(idle + disk + stolen) / sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) {
    fprintf(stderr, "usage: coll OPERATION BYTES PASSES\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char *operation = argv[1];
  int count = (int)(atol(argv[2]) / (long)sizeof(float)), passes = atoi(argv[3]);
  if (count < 1) count = 1;
  int gathers = !strcmp(operation, "gather");
  float *ours = make(count, rank + 1.0f), *all = make(gathers ? (long)count * ranks : count, 0.0f);

  for (int pass = -1; pass < passes; pass++) {
    /* Twice: the first lets everybody come, the second lets them leave together. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    double unused_before = unused(), looked = MPI_Wtime(), start = looked;
    if (gathers) {
      MPI_Gather(ours, count, MPI_FLOAT, all, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    } else if (!strcmp(operation, "bcast")) {
      MPI_Bcast(ours, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    } else if (!strcmp(operation, "reduce")) {
      MPI_Reduce(ours, all, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    } else if (!strcmp(operation, "allreduce")) {
      MPI_Allreduce(ours, all, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (!strcmp(operation, "p2p") && rank < 2) {
      int other = 1 - rank;
      if (rank == 0) MPI_Send(ours, count, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
      MPI_Recv(all, count, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == 1) MPI_Send(all, count, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
    }
    double took = MPI_Wtime() - start, last;
    MPI_Reduce(&took, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    double worked = (MPI_Wtime() - looked) * sysconf(_SC_NPROCESSORS_ONLN) - (unused() - unused_before);
    if (rank == 0 && pass >= 0) {
      printf("%.3f %.3f\n", last * 1e3, worked);
      fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
