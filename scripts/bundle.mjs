/**
 * Packs src/ and the libraries it needs, all of them, into the few files of dist/, so that the package depends on nothing. A start reads some ten files then instead of
 * some 150, and opening and linking files is most of what a start does. Declarations are the TypeScript compiler's.
 *
 * A chunk is a source directory: names in stack traces and log lines stay telling, and the parts that most runs never need
 * stay in files of their own, behind the dynamic imports that load them.
 */
import { join } from 'node:path'
import { rolldown } from 'rolldown'

/** Reached by dynamic imports only, and to stay so: in a chunk with others they would be read by every start. */
const LAZY = /\/src\/(cli\/version|metrics\/(?:process|server))\.ts$/
/** Likewise: what sends spans, with its libraries. */
const SPANS = /\/src\/trace\/opentelemetry\/|\/node_modules\/@opentelemetry\//

/** Likewise: what the metrics of the process are measured with. */
const MEASURES = /\/node_modules\/(?:prom-client|tdigest|bintrees)\//

/** Likewise: `doctor`, with what it reads and writes files with. */
const DOCTOR = /\/src\/commands\/doctor\/|\/node_modules\/(?:diff|dockerfile-ast|vscode-languageserver-\w+)\//

/** What the command line needs before it starts loading the server itself. */
const EARLY = /\/src\/(cli\/|api\/(identity|json|onnxruntime|trace_settings)\.ts$|repository\/settings\.ts$|trace\/exporter_options\.ts$)/

function chunkOf(id) {
  // Entries keep their own place; nothing else imports src/shm.
  if (id.endsWith('/src/cli/main.ts') || id.includes('/src/shm/')) return null
  const lazy = LAZY.exec(id)
  if (lazy !== null) return lazy[1].replace('/', '_')
  if (SPANS.test(id)) return 'trace_opentelemetry'
  if (id.includes('/node_modules/yaml/')) return 'yaml'
  if (MEASURES.test(id)) return 'metrics_process'
  if (DOCTOR.test(id)) return 'doctor'
  // With the bundler's own helpers, which every chunk needs.
  if (id.includes('/node_modules/') || id.includes('rolldown/runtime')) return 'protobuf'
  if (EARLY.test(id)) return 'cli'
  return /\/src\/(\w+)\//.exec(id)?.[1] ?? null
}

/** A chunk takes what it imports along, unless an earlier one has it: lower layers come first. */
const SHARED = ['protobuf', 'native', 'log', 'cli', 'config', 'metrics', 'repository', 'trace', 'api']
// Commands beside serving: read when they are asked for.
const CHUNKS = SHARED.concat('cli_version', 'yaml', 'commands', 'doctor', 'metrics_process', 'metrics_server', 'trace_opentelemetry')

/** Bundles one set of entries. A dependency that cannot be resolved must not become an import that fails at the user's. */
async function pack(options, output) {
  const bundled = await rolldown({
    platform: 'node',
    external: (id) => id.startsWith('node:'),
    resolve: { extensionAlias: { '.js': ['.ts', '.js'] } },
    onLog(level, log, handler) {
      if (level === 'warn') throw new Error(log.message)
      handler(level, log)
    },
    ...options,
  })
  try {
    return (await bundled.write({ format: 'esm', ...output })).output
  } finally {
    await bundled.close()
  }
}

export async function bundle(root) {
  const options = {
    cwd: root,
    input: { index: 'src/index.ts', 'shm/index': 'src/shm/index.ts', 'embed/index': 'src/embed/index.ts', 'cli/main': 'src/cli/main.ts' },
    // The ES modules of a package, where it has both: of CommonJS nothing could be left out.
    resolve: {
      extensionAlias: { '.js': ['.ts', '.js'] },
      mainFields: ['module', 'main'],
      // To Node it offers CommonJS only.
      alias: { yaml: join(root, 'node_modules/yaml/browser/dist/index.js') },
    },
  }
  const output = await pack(options, {
    dir: join(root, 'dist'),
    sourcemap: true,
    // Read at every start and never by a person: the source map leads to where they are.
    comments: { legal: true, annotation: false, jsdoc: false },
    // The native module and package.json are found two levels up, in dist as in src.
    chunkFileNames: 'lib/[name].js',
    codeSplitting: {
      groups: CHUNKS.map((name, i) => ({ name, test: (id) => chunkOf(id) === name, priority: CHUNKS.length - i })),
    },
  })
  return output.filter((part) => part.type === 'chunk').map((part) => part.fileName)
}

/** The thread that reads a repository of a cloud: one file, which no start reads that has no such repository. */
export async function bundleStoreThread(root) {
  await pack({ cwd: root, input: { store_thread: 'src/stores/worker.ts' } }, { dir: join(root, 'dist/lib'), comments: { legal: true, annotation: false, jsdoc: false } })
}

/** The client: two entries, and what both share in a chunk of its own: that of browsers must not lead to anything of Node. */
export async function bundleClient(root) {
  const output = await pack({ cwd: root, input: { index: 'client/src/index.ts', node: 'client/src/node.ts' }, platform: 'neutral' }, {
    dir: join(root, 'client/dist'),
    comments: { legal: true, annotation: true, jsdoc: false },
    chunkFileNames: '[name].js',
    codeSplitting: {
      groups: [
        { name: 'grpc', test: /\/client\/src\/grpc\//, priority: 1 },
        { name: 'client', test: /\/client\/src\/(?!index\.ts|node\.ts|grpc\/|http\/(?:node|pool|parser|fetch)\.ts)/, priority: 2 },
      ],
    },
  })
  const chunks = new Map(output.map((part) => [part.fileName, part.imports ?? []]))
  const reached = (name) => [name, ...(chunks.get(name) ?? []).flatMap(reached)]
  const foreign = reached('index.js').filter((name) => name.startsWith('node:'))
  if (foreign.length > 0) throw new Error(`what browsers take leads to ${foreign.join(', ')}`)
}
