// SPDX-License-Identifier: Apache-2.0
// Declares the flags of the commands that hold predictions against measurements.
#include "model/program/common/fidelity_flags.h"

#include "model/program/common/answer.h"

namespace orrery::cli {

ValidateFlags::ValidateFlags()
    : set("validate FILE.csv [flags]",
          "Predicts every run of a CSV of measured runs, one per row, and prints the errors: per "
          "source and cluster, the order within sweeps (Kendall's tau, "
          "regret), memory, and the rows that cannot be predicted, with the reason.",
          {"plan validate runs.csv", "plan validate runs.csv --engine event --json cases.json",
           "plan validate calib/data/published_runs.csv --accuracy calib/ACCURACY.md"}) {
  set.Positional(
      &runs, "FILE.csv",
      "measured runs, columns in any order: topology, nodes, gpus_per_node, framework, seq_len, "
      "global_batch, micro_batch, tp, pp, dp, zero, measured_step_s, measured_mem_gib, "
      "and model (or layers, hidden, heads); calib/validate/README.md names the others",
      Words::kFile);
  set.Value(&engine, "--engine", "NAME",
            "closed (closed form, the default) or event (simulated op by op, slower)", Words::kList,
            {"closed", "event"});
  DeclareJson(&json, &set, "validate", "every case");
  DeclareHtml(&html, &set);
  set.Output(&accuracy, "--accuracy", "[FILE]",
             "errors of both engines, leave-one-out errors, memory and collectives, as Markdown; "
             "takes minutes for 1,000 runs",
             "Written by `plan validate");
}

CompareFlags::CompareFlags()
    : set("compare PREDICTED MEASURED [flags]",
          "Compares a predicted step with a measured one. Traces: which kind of work, phase and "
          "stream differs, by how much, and which profile constants govern it. Logs: step time, "
          "tokens per second and memory, against the interval.",
          {"plan simulate --model gpt2-micro --topology localhost --gpus-per-node 2 --precision "
           "fp32 "
           "--framework orrery --trace predicted.json",
           "plan run --model gpt2-micro --ranks 2 --trace measured.json",
           "plan compare predicted.json measured.json"}) {
  set.Positional(&predicted, "PREDICTED", "trace or record of `plan simulate`", Words::kFile);
  set.Positional(&measured, "MEASURED",
                 "trace or record of `plan run`, or a log or trace of another program",
                 Words::kFile);
  DeclareJson(&json, &set, "compare");
  DeclareHtml(&html, &set);
}

CalibrateFlags::CalibrateFlags()
    : set("calibrate FILE... [flags]",
          "Fits the constants of profiles to measurements, and prints which constants the data "
          "determine and the errors on unseen runs. Writes nothing without -o or --in-place.",
          {"plan calibrate runs.csv --framework megatron@my-cluster --holdout model -o profiles",
           "plan calibrate train.log --topology ./my-cluster.yaml -o my-site.yaml",
           "plan calibrate --update my-site.yaml train2.log",
           "plan calibrate kernels.csv --gpu h200-sxm-141gb -o profiles",
           "plan calibrate all_reduce.txt all_gather.txt --topology dgx-h100 -o my-cluster.yaml"}) {
  set.Positionals(
      &files, "FILE",
      "measured runs (a log with Megatron's dump of arguments, a log or trace with its sheet "
      "LOG.yaml in the same folder, a sheet of logged runs, CSV in the columns of `plan "
      "validate`), timed kernels (CSV), or sweeps of collectives (logs of nccl-tests, CSV); "
      "calib/calibration.md says what to run and bring",
      Words::kFile);
  set.Value(&output, "--output", "PATH", "also -o PATH: folder, or one .yaml, for the new profiles",
            Words::kFile);
  set.Value(&update, "--update", "FILE.yaml",
            "adds the logs to this earlier calibration, says what moved and whether they "
            "contradict it, and writes it again (or to -o PATH)",
            Words::kFile);
  set.Switch(&in_place, "--in-place", "write into calib/profiles instead");
  set.Value(&holdout, "--holdout", "WHAT",
            "unit of the leave-one-out errors: none, model, topology or source; for sweeps point, "
            "collective, ranks, nodes, four-points, or none (nothing measured)");
  set.Group("Runs and kernels");
  set.Value(&job, "--job", "FILE", "rows, constants and priors, instead of the flags below",
            Words::kFile);
  set.Values(&gpus, "--gpu", "NAME,...", "GPU profile to calibrate, from its own rows",
             Words::kGpu);
  set.Values(&frameworks, "--framework", "NAME,...", "same for a framework: NAME[@TOPOLOGY]",
             Words::kFramework, "--stack");
  set.Values(&fabrics, "--fabric", "NAME,...",
             "same for a network; with sweeps: its class constants, through the closed form");
  set.Values(&sources, "--source", "NAME,...", "only rows of this source");
  set.Values(&free, "--free", "KEY,...",
             "constants to fit: framework:KEY, or FOLDER/FILE:KEY (default: of NAME@TOPOLOGY its "
             "site_factor, of others all)");
  set.Output(&residuals, "--residuals", "FILE",
             "CSV: predicted over measured for every row, fitted and leave-one-out",
             "case,group,model,");
  set.Values(&topologies, "--topology", "NAME",
             "where logs without a sheet ran; of sweeps, TEXT=NAME for machines with TEXT in their "
             "name",
             Words::kTopology);
  set.Value(&date, "--date", "YYYY-MM-DD", "of the runs, where their logs do not say");
  set.Value(&driver, "--driver", "TEXT", "same for the release of the GPU driver");
  set.Value(&nccl, "--nccl", "TEXT", "same for the release of NCCL");
  set.Value(&release, "--release", "TEXT", "same for the release of the framework");
  set.Group("Sweeps of collectives");
  set.Value(&machine, "--machine", "TEXT", "only machines with this in their name");
  set.Value(&ranks, "--ranks", "N", "for sweeps that do not state it");
  set.Value(&nodes, "--nodes", "N", "for sweeps that do not state it");
  set.Value(&algorithm, "--algorithm", "[TEXT=]NAME",
            "for sweeps that do not state it: ring, tree, ...; with TEXT only for machines with "
            "TEXT in their name");
}

Description DescribeValidate() { return ValidateFlags().set.Describe(); }
Description DescribeCompare() { return CompareFlags().set.Describe(); }
Description DescribeCalibrate() { return CalibrateFlags().set.Describe(); }

}  // namespace orrery::cli
