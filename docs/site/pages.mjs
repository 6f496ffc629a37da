/**
 * Lists the published files and their names, in the order of the navigation. Paths are those of the repository; a third
 * text is the name in the navigation of a page whose own title is long.
 */

export const GROUPS = [
  {
    title: '',
    pages: [
      ['docs/README.md', 'index.html', 'Nereid'],
      ['docs/start.md', 'start.html'],
      ['docs/models.md', 'models.html'],
      ['docs/text.md', 'text.html'],
      ['docs/python.md', 'python.html'],
      ['docs/typescript-models.md', 'typescript-models.html'],
      ['docs/c-backends.md', 'c-backends.html'],
      ['docs/c-programs.md', 'c-programs.html'],
      ['docs/pytorch.md', 'pytorch.html'],
      ['docs/openvino.md', 'openvino.html'],
      ['docs/tensorflow.md', 'tensorflow.html'],
      ['docs/trees.md', 'trees.html'],
      ['docs/clouds.md', 'clouds.html'],
      ['docs/vllm.md', 'vllm.html'],
      ['docs/shared-memory.md', 'shared-memory.html'],
      ['docs/gpu.md', 'gpu.html'],
      ['docs/typescript.md', 'typescript.html'],
      ['docs/client.md', 'client.html'],
      ['docs/descriptions.md', 'descriptions.html', 'Descriptions'],
      ['docs/embed.md', 'embed.html'],
    ],
  },
  {
    title: 'Operation',
    pages: [
      ['docs/migrating.md', 'migrating.html'],
      ['docs/operating.md', 'operating.html'],
      ['docs/console.md', 'console.html'],
      ['docs/why.md', 'why.html'],
      ['docs/tuning.md', 'tuning.html'],
      ['docs/bench.md', 'bench.html'],
      ['docs/scale.md', 'scale.html'],
      ['docs/containers.md', 'containers.html'],
      ['docs/deploy/README.md', 'deploy.html'],
      ['docs/systemd.md', 'systemd.html'],
      ['docs/security.md', 'security.html'],
      ['docs/security/permissions.md', 'who-may-do-what.html'],
      ['docs/security/vulnerabilities.md', 'known-vulnerabilities.html'],
      ['SECURITY.md', 'security-policy.html', 'Reports of vulnerabilities'],
      ['docs/errors.md', 'errors.html'],
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
    title: 'Inside',
    pages: [
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
