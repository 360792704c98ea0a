// SPDX-License-Identifier: Apache-2.0
// Jobs for AWS Batch and Kubernetes: documents that carry the files of the target with them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/exchange/bundle.h"
#include "model/exchange/train_script.h"

namespace orrery::exchange {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCoresPerGpu = 8;        // assumed: the least of today's training nodes (p3, p4d, p5)
constexpr int64_t kMibPerGpu = 60000;  // assumed likewise
constexpr int64_t kShmMib = 16384;     // NCCL's and the loaders' segments in /dev/shm

// What a container of Batch runs before train.sh. The main node's address is set on workers only.
constexpr const char* kBatchStart = R"sh(set -eu
mkdir -p /tmp/job && cd /tmp/job
for name in $(env | sed -n 's/^\(ORRERY_NAME_[0-9]*\)=.*/\1/p'); do
  number="${name#ORRERY_NAME_}"
  printenv "ORRERY_FILE_$number" > "$(printenv "$name")"
done
chmod +x train.sh
export NNODES="$AWS_BATCH_JOB_NUM_NODES" NODE_RANK="$AWS_BATCH_JOB_NODE_INDEX"
if [ -n "${PLACES:-}" ]; then  # the placement: NODE_RANK of each node
  read -r -a places <<< "$PLACES"
  NODE_RANK="${places[$AWS_BATCH_JOB_NODE_INDEX]}"
fi
if [ "$AWS_BATCH_JOB_NODE_INDEX" = "$AWS_BATCH_JOB_MAIN_NODE_INDEX" ]; then
  MASTER_ADDR="$(hostname -I | cut -d' ' -f1)"
else
  MASTER_ADDR="$AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
fi
export MASTER_ADDR
exec ./train.sh)sh";

// {0}: name, {1}: nodes, {2}: GPUs per node.
constexpr char kService[] = R"sh(#
# ./submit.sh applies this file with the exported variables of yours; then kubectl logs -f -l app={0}
# Assumed: the image, and that every node has {2} free GPUs. RDMA devices are named differently in every cluster: add
# yours to the limits.
apiVersion: v1
kind: Service
metadata:
  name: {0}
spec:
  clusterIP: None  # names of the pods alone
  publishNotReadyAddresses: true
  selector:
    app: {0}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {0}
data:
)sh";
// {0}: name, {1}: nodes, {2}: image in quotes, {3}: GPUs per node, {4}: MiB of shared memory, {5}: what sets PROGRAM where nobody
// does, {6}: NODE_RANK, {7}: the node where it is 0.
constexpr char kJob[] = R"sh(---
apiVersion: batch/v1
kind: Job
metadata:
  name: {0}
spec:
  completionMode: Indexed  # pod i is node i
  completions: {1}
  parallelism: {1}
  backoffLimit: 0
  template:
    metadata:
      labels:
        app: {0}
    spec:
      subdomain: {0}
      restartPolicy: Never
      affinity:
        podAntiAffinity:  # one pod per node
          requiredDuringSchedulingIgnoredDuringExecution:
            - labelSelector:
                matchLabels:
                  app: {0}
              topologyKey: kubernetes.io/hostname
      containers:
        - name: train
          image: {2}
          command: [bash, -c, "{5}{6} exec bash /job/train.sh"]
          envFrom:
            - configMapRef:  # made by submit.sh
                name: {0}-env
                optional: true
          env:
            - name: NNODES
              value: "{1}"
            - name: GPUS_PER_NODE
              value: "{3}"
            - name: MASTER_ADDR
              value: {0}-{7}.{0}
          resources:
            limits:
              nvidia.com/gpu: {3}
          securityContext:
            capabilities:
              add: [IPC_LOCK]
          volumeMounts:
            - name: job
              mountPath: /job
            - name: shm
              mountPath: /dev/shm
      volumes:
        - name: job
          configMap:
            name: {0}
        - name: shm
          emptyDir:
            medium: Memory
            sizeLimit: {4}Mi
)sh";

constexpr const char* kProgram = "/workspace/train.py";  // assumed; the image holds it
// Configurations of these targets are read by a program of the user's.
bool NeedsProgram(const Bundle& bundle) {
  return bundle.target == kDeepSpeed || bundle.target == kAccelerate;
}

std::string Printed(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json Variable(const std::string& name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

// A text of YAML, whatever it looks like ("1.5"): strings of JSON are such.
std::string QuotedText(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A block of YAML that is taken literally.
std::string Literal(const std::string& text, int indent) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    out += line.empty() ? "\n" : margin + line + "\n";
    begin = end + 1;
  }
  return out;
}

Json Container(const Bundle& bundle, const std::vector<File>& files) {
  const Case& c = bundle.layout;
  Json environment = Json::array();
  for (std::size_t i = 0; i < files.size(); ++i) {
    environment.push_back(Variable(fmt::format("ORRERY_NAME_{}", i), files[i].name));
    environment.push_back(Variable(fmt::format("ORRERY_FILE_{}", i), files[i].text));
  }
  environment.push_back(Variable("GPUS_PER_NODE", std::to_string(c.gpus_per_node)));
  if (const NodePlaces placed = PlacesOf(bundle); placed.any())
    environment.push_back(Variable("PLACES", ShellList(placed.places)));
  if (NeedsProgram(bundle)) environment.push_back(Variable("PROGRAM", kProgram));
  Json container;
  container["image"] = bundle.ImageName();
  container["command"] = {"bash", "-c", kBatchStart};
  container["environment"] = environment;
  container["resourceRequirements"] = {
      {{"type", "GPU"}, {"value", std::to_string(c.gpus_per_node)}},
      {{"type", "VCPU"}, {"value", std::to_string(kCoresPerGpu * c.gpus_per_node)}},
      {{"type", "MEMORY"}, {"value", std::to_string(kMibPerGpu * c.gpus_per_node)}}};
  container["linuxParameters"] = {{"sharedMemorySize", kShmMib}};
  container["ulimits"] = {{{"name", "memlock"}, {"softLimit", -1}, {"hardLimit", -1}},
                          {{"name", "stack"}, {"softLimit", 67108864}, {"hardLimit", 67108864}}};
  return container;
}

// Values of `passed` as the environment of Batch's overrides.
constexpr char kBatchSubmit[] = R"sh(environment=""
for name in "${{passed[@]}}"; do
  value="${{!name}}"
  value="${{value//\\/\\\\}}"
  value="${{value//\"/\\\"}}"
  value="${{value//$'\n'/\\n}}"
  value="${{value//$'\t'/\\t}}"
  for code in {{1..31}}; do  # JSON has no control characters
    printf -v control '%b' "\\0$(printf %o "$code")"
    printf -v escaped '\\u%04x' "$code"
    value="${{value//"$control"/"$escaped"}}"
  done
  environment+="${{environment:+,}}{{\"name\":\"$name\",\"value\":\"$value\"}}"
done
container="{{\"environment\":[$environment]}}"
aws batch register-job-definition --cli-input-json file://job-definition.json
aws batch submit-job --job-name {0} --job-definition {0} --job-queue "${{JOB_QUEUE:?a queue of AWS Batch}}" \
  --node-overrides "{{\"nodePropertyOverrides\":[{{\"targetNodes\":\"0:\",\"containerOverrides\":$container}}]}}"
)sh";

std::string KubernetesSubmit(const Bundle& bundle) {
  return "#!/usr/bin/env bash\n" + Comments(bundle, "#") +
         "#\n# Applies job.yaml, with variables of yours as ConfigMap " + bundle.name +
         "-env.\nset -euo pipefail\ncd \"$(dirname \"${BASH_SOURCE[0]}\")\"\n" +
         PassedVariables(bundle.target) +
         fmt::format(R"sh(pairs=()
for name in "${{passed[@]}}"; do pairs+=("--from-literal=$name=${{!name}}"); done
kubectl create configmap {0}-env "${{pairs[@]}}" --dry-run=client -o yaml | kubectl apply -f -
kubectl apply -f job.yaml
)sh",
                     bundle.name);
}

}  // namespace

std::vector<File> AwsBatchFiles(const Bundle& bundle, const std::vector<File>& files) {
  const Case& c = bundle.layout;
  const Json container = Container(bundle, files);
  Json job;
  job["jobDefinitionName"] = bundle.name;
  job["type"] = "multinode";
  job["nodeProperties"] = {
      {"numNodes", c.nodes},
      {"mainNode", PlacesOf(bundle).first()},
      {"nodeRangeProperties", {{{"targetNodes", "0:"}, {"container", container}}}}};
  job["retryStrategy"] = {{"attempts", 3},
                          {"evaluateOnExit",
                           {{{"onStatusReason", "Host EC2*"}, {"action", "RETRY"}},
                            {{"onReason", "*"}, {"action", "EXIT"}}}}};
  job["timeout"] = {{"attemptDurationSeconds", 3600}};
  Json tags = {{"orrery", "export"}};
  job["tags"] = tags;
  std::string submit = "#!/usr/bin/env bash\n" + Comments(bundle, "#");
  submit += fmt::format(
      R"sh(#
# Registers the job and submits it to the queue that JOB_QUEUE names.
# Assumed, change them in job-definition.json to those of your instances: {} vCPU and {} MiB per GPU, the image, and no
# EFA devices (with EFA: linuxParameters.devices /dev/infiniband/uverbs0 and on, and an image that has libfabric).{}
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"
)sh",
      kCoresPerGpu, kMibPerGpu,
      NeedsProgram(bundle) ? fmt::format(" PROGRAM is {} unless you set it.", kProgram) : "");
  submit += PassedVariables(bundle.target) + fmt::format(kBatchSubmit, bundle.name);
  std::vector<File> all = files;
  all.push_back({"job-definition.json", Printed(job), false});
  all.push_back({"submit.sh", submit, true});
  return all;
}

std::vector<File> KubernetesFiles(const Bundle& bundle, const std::vector<File>& files) {
  const Case& c = bundle.layout;
  const NodePlaces placed = PlacesOf(bundle);
  std::string text = Comments(bundle, "#");
  text += fmt::format(kService, bundle.name, c.nodes, c.gpus_per_node);
  for (const File& file : files)
    text += fmt::format("  {}: |\n{}", file.name, Literal(file.text, 4));
  text += fmt::format(
      kJob, bundle.name, c.nodes, QuotedText(bundle.ImageName()), c.gpus_per_node, kShmMib,
      NeedsProgram(bundle) ? fmt::format("export PROGRAM=${{PROGRAM:-{}}}; ", kProgram) : "",
      placed.any() ? fmt::format("places=({}); NODE_RANK=${{places["
                                 "$JOB_COMPLETION_INDEX]}}",
                                 ShellList(placed.places))
                   : "NODE_RANK=$JOB_COMPLETION_INDEX",
      placed.first());
  std::vector<File> all = files;
  all.push_back({"job.yaml", text, false});
  all.push_back({"submit.sh", KubernetesSubmit(bundle), true});
  return all;
}

}  // namespace orrery::exchange
