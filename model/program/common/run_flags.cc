// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan run`.
#include "model/program/common/run_flags.h"

#include "model/program/common/answer.h"

namespace orrery::cli {

RunFlags::RunFlags()
    : set("run [PLAN] [flags]",
          "Trains for real, on CPU or GPU ranks. The plan is a text from `plan show --ir`, or is "
          "made from --model and a layout. Start the ranks with this command (-n 4), with mpirun, "
          "srun or a batch system, or with torchrun or any launcher that sets RANK, WORLD_SIZE, "
          "MASTER_ADDR and MASTER_PORT; between machines also ORRERY_SECRET, the same on all.",
          {"plan run --model linear-20-1 --steps 20",
           "plan run --model gpt2-micro --ranks 2 --seq-len 64 --steps 3 --json run.json",
           "plan show --model gpt2-micro --topology localhost --pp 2 --dp 4 --ir > plan.txt",
           "plan run plan.txt -n 8"}) {
  set.Positional(&plan, "PLAN", "a plan as text, also --plan PLAN", Words::kFile, {}, "--plan");
  set.Group("The run");
  set.Value(
      &ranks, "--ranks", "N",
      "ranks, also -n N (default: those of mpirun, else as many as the plan or layout needs)");
  set.Value(&comm, "--comm", "KIND",
            "mpi (processes; default where available), local (threads of one process) or tcp "
            "(processes of another launcher; default where MASTER_ADDR is set)",
            Words::kList, {"mpi", "local", "tcp"});
  set.Value(&hostfile, "--hostfile", "FILE",
            "mpirun starts the ranks on these hosts: \"NAME slots=N\" per line; line k, from 0, is "
            "node k of "
            "--placement",
            Words::kFile);
  set.Value(&device, "--device", "KIND",
            "cpu (default) or cuda: each rank trains on a GPU of this machine", Words::kList,
            {"cpu", "cuda"});
  set.Value(&cuda_graphs, "--cuda-graphs", "KIND",
            "on: repeated kernels are launched as CUDA graphs, except with --trace and --profile "
            "(default off)",
            Words::kList, {"on", "off"});
  set.Value(&steps, "--steps", "N", "training steps (default 10)");
  set.Value(&seed, "--seed", "N", "random seed of initial weights and samples (default 1)");
  set.Value(&data, "--data", "FILE",
            "text (one byte per token), tokens (.bin, .u16, .u32), or a built-in source: corpus (a "
            "small text), synthetic (random tokens; default), random-set (features)",
            Words::kFile);
  set.Value(&mask_token, "--mask-token", "N",
            "mask token of masked language modelling (default 103 for BERT's vocabulary, 256 for "
            "text if the vocabulary has it, else the last token)");
  set.Value(&timeout, "--timeout", "TIME",
            "abort when no message arrives from a peer within this time (default 120s)");
  set.Value(&lr, "--lr", "RATE", "learning rate (default 1e-3)");
  set.Value(&lr_schedule, "--lr-schedule", "KIND",
            "how it changes after the warm-up: constant (default), cosine or polynomial",
            Words::kList, {"constant", "cosine", "polynomial"});
  set.Value(&warmup, "--warmup", "N", "the first N steps raise it linearly (default 0)");
  set.Value(&lr_steps, "--lr-steps", "N",
            "the step at which it ends falling; runs that are to continue each other need the same "
            "(default: --steps)");
  set.Value(&lr_end, "--lr-end", "RATE", "where it ends (default 0)");
  set.Value(&lr_power, "--lr-power", "P", "power of the polynomial (default 1: a line)");
  set.Value(&weight_decay, "--weight-decay", "RATE", "weight decay (default 0.01)");
  set.Value(&clip_norm, "--clip-norm", "NORM", "largest gradient norm, 0: no clipping (default 1)");
  set.Group("Checkpoints of HuggingFace");
  set.Value(&init_from, "--init-from", "PATH",
            "begin with the weights of a checkpoint, in any layout: a folder as save_pretrained of "
            "transformers writes it, or a .safetensors file (default model: the folder's "
            "config.json). Where there is something to --resume, that counts",
            Words::kFile);
  set.Value(&export_hf, "--export-hf", "DIR",
            "after the last step write the weights into DIR for from_pretrained of transformers: "
            "safetensors and config.json. Of a snapshot: with --resume and --steps 0",
            Words::kFile);
  set.Group("Snapshots");
  set.Value(&save, "--save", "DIR", "write snapshots into DIR (default: that of --resume)",
            Words::kFile);
  set.Value(&save_every, "--save-every", "N", "after every N-th step (default: after the last)");
  set.Value(
      &resume, "--resume", "DIR",
      "continue from the newest complete snapshot in DIR, on any number of ranks and any layout",
      Words::kFile);
  set.Value(
      &time_limit, "--time-limit", "TIME",
      "end after the step in which TIME is over, as after SIGTERM, SIGUSR1 or SIGINT (Ctrl-C; a "
      "second one ends it at once): with a snapshot and exit code 85. An mpirun of your own kills "
      "its "
      "ranks 2 s after Ctrl-C or SIGTERM, also in the middle of a step: send SIGUSR1 to it");
  set.Switch(
      &supervise, "--supervise",
      "start the ranks again after a failure, from the newest complete snapshot of --save, on "
      "the slots that --hostfile still has");
  set.Value(
      &host_test, "--host-test", "COMMAND",
      "--supervise asks the hosts of --hostfile with it, over mpirun's agent (ssh), before each "
      "start and every --timeout, and excludes those where it fails (default true)");
  set.Value(
      &host_wait, "--host-wait", "TIME",
      "--supervise waits so long after a loss for hosts that do not answer, then goes on with "
      "those that do (default 0s); one that answers later is taken in behind the next snapshot");
  set.Value(&max_restarts, "--max-restarts", "N",
            "give up after N failures in a row without a new snapshot (default 3)");
  set.Group("The output");
  set.Value(&log_every, "--log-every", "N", "print every N-th step (default 1)");
  DeclareJson(&json, &set, "run");
  DeclareHtml(&html, &set);
  set.Output(&trace, "--trace", "FILE",
             "the last step of all ranks as a Chrome trace, for Perfetto", kTraceHead);
  set.Value(&trace_steps, "--trace-steps", "N", "the last N steps in it (default 1)");
  set.Value(&tensorboard, "--tensorboard", "DIR",
            "write an event file into DIR: loss, gradient norm, throughput, MFU, step time",
            Words::kFile);
  set.Switch(&profile, "--profile",
             "print where the step time goes: kernels and communication, by phase and kind of op");
  job.default_batch = false;  // millions of tokens would be no trial run
  job.Declare(&set, false);
  layout.Declare(&set, "The layout (defaults: 1, none, off)");
  set.Switch(&best_layout, "--best-layout",
             "the planner's fastest layout on at most --ranks ranks, instead of these flags");
  DeclareFrom(&job, &set);
}

Description DescribeRun() { return RunFlags().set.Describe(); }

}  // namespace orrery::cli
