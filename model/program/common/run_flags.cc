// SPDX-License-Identifier: Apache-2.0
// Declares the flags of `plan run`.
#include "model/program/common/run_flags.h"

namespace orrery::cli {

RunFlags::RunFlags()
    : set("run [PLAN] [flags]",
          "Really trains: executes a plan on CPU ranks, one thread each, or on GPUs. The plan is a "
          "text that "
          "`plan show --ir` printed, or is made from --model and a layout. Ranks are started by "
          "this command (-n 4), by mpirun, srun or a batch system around it, or by torchrun and "
          "whatever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
          {"plan run --model linear-20-1 --steps 20",
           "plan run --model gpt2-micro --ranks 2 --seq-len 64 --steps 3 --json run.json",
           "plan show --model gpt2-micro --topology localhost --pp 2 --dp 4 --ir > plan.txt",
           "plan run plan.txt -n 8"}) {
  set.Positional(&plan, "PLAN", "a plan as text", Words::kFile);
  set.Group("The run");
  set.Value(&ranks, "--ranks", "N",
            "ranks, also -n N (default: those of mpirun, else as the plan or layout asks)");
  set.Value(&comm, "--comm", "KIND",
            "mpi (processes; default where it is there), local (threads of one process) or tcp "
            "(processes started by something else; default where MASTER_ADDR is set)",
            Words::kList, {"mpi", "local", "tcp"});
  set.Value(&device, "--device", "KIND",
            "cpu (default) or cuda: each rank trains on a GPU of this machine", Words::kList,
            {"cpu", "cuda"});
  set.Value(
      &cuda_graphs, "--cuda-graphs", "KIND",
      "on: kernels that repeat are launched as CUDA graphs, except with --trace and --profile "
      "(default off: this has never run on a GPU)",
      Words::kList, {"on", "off"});
  set.Value(&steps, "--steps", "N", "training steps (default 10)");
  set.Value(&seed, "--seed", "N", "other initial weights and samples (default 1)");
  set.Value(&data, "--data", "FILE",
            "text (a byte a token), tokens (.bin, .u16, .u32), or the name of a source: corpus (a "
            "small text that comes with this), synthetic (tokens drawn at random; default), "
            "random-set (features)",
            Words::kFile);
  set.Value(&mask_token, "--mask-token", "N",
            "what hides a token of masked language modelling (default 103 for BERT's vocabulary, "
            "256 for text that has room for it, else the last token)");
  set.Value(&timeout, "--timeout", "TIME",
            "give up when nothing has come from other ranks for so long (default 120s)");
  set.Value(&lr, "--lr", "RATE", "learning rate (default 1e-3)");
  set.Value(&weight_decay, "--weight-decay", "RATE", "weight decay (default 0.01)");
  set.Value(&clip_norm, "--clip-norm", "NORM", "largest gradient norm, 0: no clipping (default 1)");
  set.Group("Snapshots");
  set.Value(&save, "--save", "DIR", "write snapshots into DIR (default: that of --resume)",
            Words::kFile);
  set.Value(&save_every, "--save-every", "N", "after every N-th step (default: after the last)");
  set.Value(&resume, "--resume", "DIR",
            "go on from the newest whole snapshot in DIR, on any number of ranks and any layout",
            Words::kFile);
  set.Group("The output");
  set.Value(&log_every, "--log-every", "N", "print every N-th step (default 1)");
  set.Value(&json, "--json", "[FILE]", "as JSON, schema orrery.run/1, instead of text or into FILE",
            Words::kFile);
  set.Value(&trace, "--trace", "FILE", "the last step of all ranks as a Chrome trace, for Perfetto",
            Words::kFile);
  set.Value(&trace_steps, "--trace-steps", "N", "the last N steps in it (default 1)");
  set.Value(&tensorboard, "--tensorboard", "DIR",
            "write an event file into DIR: loss, gradient norm, throughput, MFU, step time",
            Words::kFile);
  set.Switch(&profile, "--profile",
             "what a step's time goes into: kernels and communication, by phase and kind of op");
  job.Declare(&set, false);
  layout.Declare(&set, "The layout (what is not given is 1, none or off)");
}

Description DescribeRun() { return RunFlags().set.Describe(); }

}  // namespace orrery::cli
