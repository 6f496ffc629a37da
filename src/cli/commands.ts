/**
 * Table of the commands of `nereid` other than serving. The dispatcher, `--help`, the man page and shell completion are
 * made from it.
 *
 * The code of a command is in `src/tools/<name>/`. A command is the first argument, spelled exactly as here;
 * anything else is a flag of the server, as for `tritonserver`.
 */

import { INIT_ENDS } from '../config/backends.js'
import { TOPICS } from './flags.js'

export interface Command {
  name: string
  /** Arguments after the name in usage lines, such as `MODEL.onnx [options]`. */
  usage: string
  /** One sentence, ASCII, for help and docs. */
  meaning: string
  options?: readonly CommandOption[]
  /** Accepts the server's options as well. */
  takesFlags?: true
  /** Possible arguments: words, or files with one of these endings (directories always). */
  words?: () => readonly string[]
  files?: readonly string[]
  /** Imports the command when it is called, so that a start of the server loads none of them. */
  load(): Promise<CommandModule>
}

/** An option of a command, written `--name=value`, or `--name` if it has no value. */
export interface CommandOption {
  /** Name without the leading dashes. */
  name: string
  /** Placeholder of the value, such as `path`; absent for an option without a value. */
  value?: string
  isValueOptional?: true
  /** One sentence, ASCII, for help and docs. */
  meaning: string
}

export interface CommandModule {
  /** Runs with the arguments after the name, prints its own output, and resolves with the exit code. */
  run(program: string, args: readonly string[]): Promise<number>
}

/** Option of commands that ask a server (`remote.ts`). */
const HEADER: CommandOption = {
  name: 'header',
  value: 'name: value',
  meaning: 'Header to send with every request to the server.',
}

export const COMMANDS: readonly Command[] = [
  {
    name: 'check',
    usage: '[REPOSITORY | MODEL | config.pbtxt ...] [options]',
    meaning:
      'Print every mistake in model repositories with its place: in configurations, ONNX graphs, code and ' +
      'named files. Starts no server, but takes its options.',
    options: [
      {
        name: 'load',
        meaning: 'Load the models once, as a server does, and print the mistakes that only loading can find.',
      },
      {
        name: 'format',
        value: 'text|json|github',
        meaning: 'Format of the output; github prints annotations for GitHub Actions.',
      },
    ],
    takesFlags: true,
    files: ['.pbtxt'],
    load: () => import('../tools/check/index.js'),
  },
  {
    name: 'init',
    usage: '(FILE | DIRECTORY | --python NAME | --example [NAME]) [options]',
    meaning:
      'Make a model repository from a model, from a directory with a model.onnx, a model.py or a model.ts, or from ' +
      'the folder of a text model, try it, and print the command that serves it and a request that works. FILE is a ' +
      'model of ONNX (.onnx), PyTorch (.pt, .pt2), OpenVINO (.xml) or TensorRT (.plan), trees of XGBoost (.json, ' +
      '.ubj, .model), LightGBM (.txt) or treelite (.tl), or a model.json with the arguments of a vLLM engine.',
    options: [
      {
        name: 'name',
        value: 'name',
        meaning:
          'Name of the model. Default: the name of the file or, if that is a common one (model.onnx, model.txt, ' +
          'saved_model.pb, 1), of the directory above.',
      },
      {
        name: 'out',
        value: 'path',
        meaning: 'Model repository for the result, created if it is missing. Default: models.',
      },
      {
        name: 'batch',
        value: 'rows',
        isValueOptional: true,
        meaning:
          'Run requests together in batches of up to ROWS rows: 4 by default, 4096 for trees, which always batch. ' +
          'The first dimension of all inputs and outputs is the batch. Without this option, a short trial ' +
          'decides: it batches if rows are independent and batches are faster.',
      },
      {
        name: 'task',
        value: 'classify|detect',
        meaning:
          'Make an ensemble that takes files of pictures, of an ONNX model that classifies them or detects objects: ' +
          'NAME, NAME_image, NAME_network, and NAME_labels or NAME_boxes. A preprocessor_config.json and a ' +
          'config.json beside the model, and metadata of Ultralytics in it, decide its steps; the output lists ' +
          'the guesses.',
      },
      {
        name: 'file',
        value: 'path',
        meaning: 'Graph of a text model, below its DIRECTORY, such as onnx/model_quantized.onnx.',
      },
      {
        name: 'export',
        meaning:
          'Write DIRECTORY/onnx/model.onnx first, from the weights of a text model. NEREID_PYTHON or python3 needs ' +
          'torch, transformers, onnx and onnxruntime.',
      },
      { name: 'python', meaning: 'Write a Python model to start from, called NAME.' },
      {
        name: 'example',
        value: 'name',
        isValueOptional: true,
        meaning:
          'Write the files of a tutorial (docs/tutorials), by default to the directory NAME. Without NAME, list them.',
      },
      { name: 'link', meaning: 'Hard-link the model instead of copying it.' },
      { name: 'force', meaning: 'Replace existing files. Files of another model are reported and stay.' },
    ],
    files: INIT_ENDS,
    load: () => import('../tools/init/index.js'),
  },
  {
    name: 'optimize',
    usage: 'MODEL [options]',
    meaning:
      'Make an int8 model of an ONNX or text model, and compare the two. MODEL is in a repository. NEREID_PYTHON ' +
      'or python3 needs onnxruntime, which makes it. Both models run in a server; the output compares them: ' +
      'cosine of the outputs, changes of ranks, CPU, rate and memory. A model that differs too much is not ' +
      'written.',
    options: [
      {
        name: 'out',
        value: 'path',
        meaning: 'Model repository for the result, created if it is missing. Default: optimized.',
      },
      {
        name: 'inputs',
        value: 'path',
        meaning:
          'Requests to compare with: JSON as in POST /v2/models/NAME/infer (an array, or one in a line), the trace ' +
          'of a server with level=TENSORS, or lines of text for a text model. Default: generated requests, which ' +
          'are less conclusive.',
      },
      {
        name: 'method',
        value: 'dynamic|static',
        meaning:
          'How to find the ranges of values: in each run (dynamic), or by a calibration with the inputs (static). ' +
          'Default: static for graphs with convolutions, dynamic for others.',
      },
      {
        name: 'exclude',
        value: 'nodes',
        meaning:
          'Names of nodes that are not converted: patterns with * and ?, joined by commas. May be given several times.',
      },
      {
        name: 'per-tensor',
        meaning: 'One scale for each weight instead of one for each of its channels, which is less exact.',
      },
      {
        name: 'accept',
        meaning: 'Write the result also if the cosine of outputs is below 0.99 in the mean or 0.97 for any.',
      },
      { name: 'force', meaning: 'Replace existing files.' },
    ],
    load: () => import('../tools/optimize/index.js'),
  },
  {
    name: 'new',
    usage: '(model NAME | backend NAME | app [NAME]) [--lang=LANGUAGE] [options]',
    meaning:
      'Write the smallest model in TypeScript or Python and a test that runs without a server, try it, and print the ' +
      "commands that test it, serve it and call it. Or write the smallest backend for Triton's C API in C or " +
      'Rust, with a model and a test, and print the commands that build it, test it and serve it. Or write a project ' +
      'in TypeScript with a server, a model, a client and tests, called app by default, and print the commands that ' +
      'install it, test it, start it and call it.',
    options: [
      {
        name: 'lang',
        value: 'ts|python|c|rust',
        meaning: 'Language of the model, ts by default, or of the backend, c by default. A project has ts only.',
      },
      {
        name: 'out',
        value: 'path',
        meaning:
          'Directory for the result, created if it is missing. Default: models, for a model; the current one, for a ' +
          'backend or project.',
      },
      { name: 'force', meaning: 'Replace existing files. Files of another model are reported and stay.' },
    ],
    words: () => ['model', 'backend', 'app'],
    load: () => import('../tools/new/index.js'),
  },
  {
    name: 'dev',
    usage: 'REPOSITORY [options]',
    meaning:
      'Serve a model repository on this machine and load a model again when one of its files is saved. While the ' +
      'saved files of a model fail to load, the terminal and the responses show the error. Takes the options of a ' +
      'server; HTTP and gRPC listen to 127.0.0.1 by default.',
    takesFlags: true,
    load: () => import('../tools/dev/index.js'),
  },
  {
    name: 'doctor',
    usage: '[REPOSITORY | FILE | DIRECTORY | - ...] [options] [-- tritonserver ...]',
    meaning:
      'Print, line by line, which parts of a Triton deployment run unchanged, differ, or need a change. ' +
      'Reads repositories, command lines, docker run, Dockerfiles, compose files and Kubernetes manifests.',
    options: [
      { name: 'image', value: 'name', meaning: 'Image of Nereid to put into the files.' },
      { name: 'format', value: 'text|json', meaning: 'Format of the output.' },
    ],
    files: ['.yaml', '.yml', '.sh', 'Dockerfile'],
    load: () => import('../tools/doctor/index.js'),
  },
  {
    name: 'gpu',
    usage: '[--json] [options]',
    meaning:
      'Print what this machine has for models on GPUs (driver, devices, CUDA, TensorRT), what is missing, ' +
      'and the commands that install it. Starts no server, but takes its options.',
    options: [{ name: 'json', meaning: 'Print JSON.' }],
    takesFlags: true,
    load: () => import('../tools/gpu/index.js'),
  },
  {
    name: 'config',
    usage: '[--format=json] [options]',
    meaning:
      'Print every effective option of a server and its source: the command line, a variable, a line of the ' +
      'file of --config, or nothing. The output is such a file, with masked secrets. Starts no server, but ' +
      'takes its options.',
    options: [{ name: 'format', value: 'text|json', meaning: 'Format of the output.' }],
    takesFlags: true,
    load: () => import('../tools/config/index.js'),
  },
  {
    name: 'gen',
    usage: 'ts (--url=URL | --model-repository=PATH) [options]',
    meaning:
      'Write models of a server or repository as TypeScript types for nereid-client. A key for ' +
      'the server is read from NEREID_KEY.',
    options: [
      { name: 'url', value: 'url', meaning: 'HTTP address of the server, such as http://localhost:8000.' },
      {
        name: 'model-repository',
        value: 'path',
        meaning: 'A repository instead of a server; its models are loaded once.',
      },
      { name: 'models', value: 'names', meaning: 'Names of models, joined by commas. Default: all ready models.' },
      { name: 'out', value: 'path', meaning: 'The file to write. Default: standard output.' },
      {
        name: 'check',
        value: 'path',
        meaning:
          'Write nothing; print the differences between this file and the models, and exit with 1 if there are any.',
      },
      {
        name: 'import',
        value: 'module',
        meaning:
          'Where the client is imported from. Default: nereid-client or nereid/client, whichever is ' +
          'installed where the file is written.',
      },
      HEADER,
    ],
    words: () => ['ts'],
    load: () => import('../tools/gen/index.js'),
  },
  {
    name: 'why',
    usage: '[MODEL | - | RECORD] [options]',
    meaning:
      'Explain why requests were slow, and what to change. MODEL explains the last minutes of a model, RECORD the ' +
      'value of the field nereid-why of a response (with - a response on stdin, as curl -D- prints it), and neither ' +
      'the slowest and the failed requests of the server. A key for it is read from NEREID_KEY.',
    options: [
      { name: 'url', value: 'url', meaning: 'HTTP address of the server. Default: http://localhost:8000.' },
      {
        name: 'id',
        value: 'id',
        meaning: 'Explain the requests with this id that the server keeps, those of MODEL or all.',
      },
      {
        name: 'version',
        value: 'version',
        meaning: 'Version of the model. Default: the version that requests without one use.',
      },
      {
        name: 'simulate',
        value: 'name=number,...',
        meaning: 'Replay the last requests with other settings: instances, delay_us, max_batch_size or threads.',
      },
      { name: 'json', meaning: 'Print the response of the server as JSON.' },
      HEADER,
    ],
    load: () => import('../tools/why/index.js'),
  },
  {
    name: 'bench',
    usage: '[URL [URL]] [options]',
    meaning:
      'Measure the rate and latency of a server of the v2 protocol, Triton too. Or find the highest rate within a ' +
      'latency. With two URLs, run both in turns and print whether they differ. URL is http://HOST:PORT or ' +
      "grpc://HOST:PORT, http://localhost:8000 by default. perf_analyzer's options work as well. A key is read from " +
      'NEREID_KEY.',
    options: [
      { name: 'model', value: 'name', meaning: 'Default: the only model of the server that is ready.' },
      {
        name: 'version',
        value: 'version',
        meaning: 'Version of the model. Default: the version that requests without one use.',
      },
      { name: 'protocol', value: 'http|grpc', meaning: 'Protocol of a URL that is HOST:PORT. Default: http.' },
      {
        name: 'endpoint',
        value: 'name',
        meaning:
          'infer (the default), stream (of gRPC), generate, generate_stream, embeddings, rerank, chat or ' +
          'completions. Streams have times to the first response and to the next ones.',
      },
      {
        name: 'concurrency',
        value: 'n',
        meaning: 'Requests in flight: N, START:END, START:END:STEP or N,N,N, each measured by itself. Default: 1.',
      },
      {
        name: 'rate',
        value: 'n',
        meaning:
          'Requests per second to send, instead of a concurrency, in the same forms. Latency counts from the time ' +
          'at which a request was due.',
      },
      {
        name: 'arrivals',
        value: 'constant|poisson',
        meaning: 'Distribution of the times at which requests are due. Default: poisson.',
      },
      {
        name: 'goal',
        value: 'limit',
        meaning: "Find the highest rate within a latency, such as 'p99<20ms' (mean, p50, p90, p95, p99, p999 or max).",
      },
      {
        name: 'seconds',
        value: 'n',
        meaning: 'Seconds of a measurement. Default: 5; with two servers, 1 for each run.',
      },
      { name: 'warmup', value: 'n', meaning: 'Seconds of warm-up before each measurement. Default: 0.5.' },
      {
        name: 'requests',
        value: 'n',
        meaning: 'Number of requests after which a measurement ends; there is no warm-up then.',
      },
      {
        name: 'stop-within',
        value: 'percent',
        meaning:
          'Measure, at most ten times, until three measurements in a row differ by at most so many percent in ' +
          'rate and latency; print those three.',
      },
      {
        name: 'percentile',
        value: 'percent',
        meaning: 'Percentile of latency to compare instead of the mean, 1 to 99.9. It gets a column of its own.',
      },
      { name: 'pairs', value: 'n', meaning: 'Runs of each of two servers. Default, and at least: 10.' },
      {
        name: 'timeout',
        value: 'seconds',
        meaning: 'Seconds after which a connection attempt, or a request without a response, fails. Default: 30.',
      },
      {
        name: 'connections',
        value: 'n',
        meaning: 'Number of connections. Default: one for each request in flight; over gRPC, one for six.',
      },
      { name: 'shape', value: 'input:dims', meaning: 'Shape of an input, such as image:3,224,224. May be repeated.' },
      {
        name: 'batch',
        value: 'rows',
        meaning: 'Rows of a request; for embeddings its texts, for rerank its documents.',
      },
      {
        name: 'data',
        value: 'source',
        meaning:
          "Values of the inputs: random (the default), zero, or the path of perf_analyzer's JSON, of a directory " +
          'with a file for each input, or of lines of text. May be repeated.',
      },
      {
        name: 'text-words',
        value: 'mean[,deviation]',
        meaning: 'Number of words of generated texts: mean and deviation. Default: 30,10.',
      },
      { name: 'request-parameter', value: 'name:value:type', meaning: 'Parameter of each request. May be repeated.' },
      {
        name: 'shared-memory',
        value: 'system|none',
        isValueOptional: true,
        meaning: 'Send tensors in system shared memory; the server must run on this machine.',
      },
      { name: 'tensors', value: 'binary|json', meaning: 'Format of tensors over HTTP. Default: binary.' },
      { name: 'seed', value: 'n', meaning: 'Seed of random values and arrivals. Default: 1.' },
      { name: 'csv', value: 'path', meaning: "Write the results with perf_analyzer's columns." },
      {
        name: 'json',
        value: 'path',
        isValueOptional: true,
        meaning: 'Write all figures as JSON to this file; without a path, print them.',
      },
      { name: 'report', value: 'path', meaning: 'Write an HTML page with curves.' },
      {
        name: 'tls-ca',
        value: 'path',
        meaning: 'Certificates of the authority that signs the one of the server, as PEM.',
      },
      { name: 'tls-cert', value: 'path', meaning: 'Certificate of the client, as PEM.' },
      { name: 'tls-key', value: 'path', meaning: 'Key of the certificate of the client, as PEM.' },
      { ...HEADER, meaning: 'Header to send with every request. May be repeated.' },
    ],
    load: () => import('../tools/bench/index.js'),
  },
  {
    name: 'key',
    usage: '[KEYS_FILE] --name=NAME --scope=SCOPE ... [options]',
    meaning:
      'Make a random key, print it once, and add its hash to a keys file, which is created if it is missing; ' +
      'without a file, print the entry. Servers with --keys-file accept it within a second.',
    options: [
      { name: 'name', value: 'name', meaning: 'Name of the key in logs, metrics and errors.' },
      {
        name: 'scope',
        value: 'verbs[:models]',
        meaning:
          'Permissions of the key, such as inference,metadata:resnet* or all; all:read permits only reading. ' +
          'May be given several times.',
      },
      {
        name: 'expires',
        value: 'time',
        meaning: 'Time at which the key expires: 2027-01-31, 2027-01-31T12:00:00Z, or 90d from now.',
      },
      { name: 'concurrency', value: 'count', meaning: 'Maximum number of requests of the key in flight.' },
      { name: 'requests-per-second', value: 'count', meaning: 'Maximum number of requests of the key per second.' },
      {
        name: 'burst',
        value: 'count',
        meaning: 'Maximum number of requests that may arrive at the same moment. Default: the number per second.',
      },
      { name: 'bytes-per-second', value: 'count', meaning: 'Maximum bytes of requests of the key per second.' },
      { name: 'hash', meaning: 'Read the key from stdin instead of making one.' },
    ],
    files: ['.json'],
    load: () => import('../tools/key/index.js'),
  },
  {
    name: 'completion',
    usage: '(bash | zsh | fish)',
    meaning: 'Print a script that completes commands and options in a shell.',
    words: () => ['bash', 'zsh', 'fish'],
    load: () => import('../tools/completion/index.js'),
  },
  {
    name: 'help',
    usage: '[TOPIC | COMMAND]',
    meaning: 'Print an overview, options of a topic, or a command; all prints every option.',
    words: () => [...TOPICS.map((topic) => topic.name), 'all', ...COMMANDS.map((command) => command.name)],
    load: () => import('./help_command.js'),
  },
  { name: 'version', usage: '', meaning: 'Print the version.', load: () => import('./version.js') },
]
