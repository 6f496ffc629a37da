/**
 * Lists the published files and their names, in the order of the navigation: by task. Paths are those of the
 * repository; a third text is the name in the navigation of a page whose own title is long.
 */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** A page below docs/ that is published once it is written. */
const once = (file, name) =>
  existsSync(`${ROOT}docs/${file}.md`) ? [[`docs/${file}.md`, `${file.replace('README', 'index')}.html`, name]] : []

export const GROUPS = [
  {
    title: '',
    pages: [
      ['docs/README.md', 'index.html', 'Nereid'],
      ['docs/start.md', 'start.html'],
      ...once('tutorials/README', 'Tutorials'),
      ['docs/models.md', 'models.html'],
      ['docs/migrating.md', 'migrating.html'],
      ...once('tutorials/from-triton', 'Tutorial: from a Triton'),
    ],
  },
  {
    title: 'Serve a function',
    pages: [
      ['docs/python.md', 'python.html', 'Python functions and models'],
      ['docs/typescript-models.md', 'typescript-models.html'],
      ...once('tutorials/voice', 'Tutorial: voice activity'),
      ...once('tutorials/ensemble', 'Tutorial: an ensemble'),
      ...once('tutorials/versions', 'Tutorial: A/B by versions'),
    ],
  },
  { title: 'Serve text', pages: [['docs/text.md', 'text.html'], ...once('tutorials/search', 'Tutorial: search')] },
  {
    title: 'Serve pictures',
    pages: [
      ['docs/images.md', 'images.html'],
      ...once('tutorials/ocr', 'Tutorial: OCR'),
      ...once('tutorials/detector', 'Tutorial: a detector'),
      ['docs/pytorch.md', 'pytorch.html'],
      ['docs/openvino.md', 'openvino.html'],
      ['docs/tensorflow.md', 'tensorflow.html'],
    ],
  },
  { title: 'Serve trees', pages: [['docs/trees.md', 'trees.html'], ...once('tutorials/xgboost', 'Tutorial: XGBoost')] },
  {
    title: 'Serve an LLM',
    pages: [
      ['docs/vllm.md', 'vllm.html'],
      ['docs/chat-engines.md', 'chat-engines.html'],
      ...once('tutorials/llm', 'Tutorial: a small LLM'),
    ],
  },
  {
    title: 'Call a server',
    pages: [
      ['docs/client.md', 'client.html'],
      ['docs/files.md', 'files.html'],
      ['docs/descriptions.md', 'descriptions.html', 'Descriptions'],
      ['docs/typescript.md', 'typescript.html'],
      ['docs/embed.md', 'embed.html'],
      ['docs/shared-memory.md', 'shared-memory.html'],
    ],
  },
  {
    title: 'Operate',
    pages: [
      ['docs/operating.md', 'operating.html'],
      ['docs/console.md', 'console.html'],
      ['docs/why.md', 'why.html'],
      ['docs/tuning.md', 'tuning.html'],
      ['docs/bench.md', 'bench.html'],
      ['docs/scale.md', 'scale.html'],
      ['docs/gpu.md', 'gpu.html'],
      ['docs/clouds.md', 'clouds.html'],
      ['docs/containers.md', 'containers.html'],
      ['docs/deploy/README.md', 'deploy.html', 'Kubernetes and Helm'],
      ['docs/systemd.md', 'systemd.html'],
      ['docs/security.md', 'security.html'],
      ['docs/security/permissions.md', 'who-may-do-what.html'],
      ['docs/security/vulnerabilities.md', 'known-vulnerabilities.html'],
      ['SECURITY.md', 'security-policy.html', 'Reports of vulnerabilities'],
      ['docs/errors.md', 'errors.html'],
    ],
  },
  {
    title: 'Extend',
    pages: [
      ['docs/c-backends.md', 'c-backends.html'],
      ['docs/c-programs.md', 'c-programs.html'],
    ],
  },
  {
    title: 'Reference',
    pages: [
      ['docs/flags.md', 'flags.html'],
      ['docs/commands.md', 'commands.html'],
      ['docs/metrics.md', 'metrics.html'],
      ['docs/typescript-reference.md', 'typescript-reference.html'],
      ['docs/limits.md', 'limits.html', 'Limits'],
      ['docs/support.md', 'support.html'],
      ['COMPAT.md', 'compat.html'],
      ['CHANGELOG.md', 'changes.html'],
    ],
  },
  {
    title: 'Contribute',
    pages: [
      ['CONTRIBUTING.md', 'contributing.html'],
      ['ARCHITECTURE.md', 'architecture.html'],
      ['docs/internals/where.md', 'inside/where.html', 'Where is the code that …'],
      ['docs/internals/walks.md', 'inside/walks.html'],
      ['docs/internals/words.md', 'inside/words.html'],
      ['docs/internals/suites.md', 'inside/suites.html'],
      ['docs/internals/counts.md', 'inside/counts.html'],
      ['docs/internals/releasing.md', 'inside/releasing.html'],
      ['docs/decisions/README.md', 'decisions/index.html', 'Decisions'],
      ['bench/README.md', 'benchmarks.html', 'Benchmarks'],
      ['bench/results/full.md', 'benchmarks-results.html', 'Results of the benchmarks'],
      ['docs/spec/README.md', 'contract/index.html', 'Triton’s behaviour'],
    ],
  },
]

/** Folders whose pages are published beside their index, and are neither in the navigation nor in the search. */
export const FOLDERS = [
  ['docs/spec', 'contract'],
  ['docs/compat', 'compat'],
  ['docs/decisions', 'decisions'],
]

/** The README of a crate is published as inside/CRATE.html, likewise. */
export const CRATES = 'crates'
