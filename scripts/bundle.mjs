/**
 * Packs src/ with all libraries it needs into the few files of dist/, so that the package has no dependencies. A start
 * reads some ten files instead of 150, and opening and linking files is most of a start's work. The TypeScript compiler
 * writes the declarations.
 *
 * A chunk is a source directory: names in stack traces and log lines stay meaningful, and rarely used parts stay in
 * files of their own, behind dynamic imports.
 */
import { join } from 'node:path'
import { rolldown } from 'rolldown'

/** Modules behind dynamic imports: in a chunk with others, every start would read them. */
const LAZY = /\/src\/(cli\/(?:version|help_command)|metrics\/(?:process|server))\.ts$/
/** Sending spans, with its libraries; lazy too. */
const SPANS = /\/src\/trace\/opentelemetry\/|\/node_modules\/@opentelemetry\//

/** Libraries that measure the process; lazy too. */
const MEASURES = /\/node_modules\/(?:prom-client|tdigest|bintrees)\//

/** `doctor` with its parsers and writers; lazy too. */
const DOCTOR = /\/src\/tools\/doctor\/|\/node_modules\/(?:diff|dockerfile-ast|vscode-languageserver-\w+)\//

/** The commands that only send requests, and need nothing of a server in this process; lazy too. */
const CLIENTS = /\/src\/tools\/(?:bench|why)\//

/** Modules that the command line needs before it loads the server. */
const EARLY =
  /\/src\/(cli\/|(api\/(identity|json|onnxruntime|trace_settings)|repository\/settings|trace\/exporter_options)\.ts$)/

function chunkOf(id) {
  // Entries keep their own paths; nothing else imports src/shm.
  if (/\/src\/(?:cli\/main|internal)\.ts$/.test(id) || id.includes('/src/shm/')) return null
  const lazy = LAZY.exec(id)
  if (lazy !== null) return lazy[1].replace('/', '_')
  if (SPANS.test(id)) return 'trace_opentelemetry'
  if (id.includes('/node_modules/yaml/')) return 'yaml'
  if (MEASURES.test(id)) return 'metrics_process'
  if (DOCTOR.test(id)) return 'doctor'
  if (CLIENTS.test(id)) return 'tools_clients'
  // With the bundler's own helpers, which every chunk needs.
  if (id.includes('/node_modules/') || id.includes('rolldown/runtime')) return 'protobuf'
  if (EARLY.test(id)) return 'cli'
  // Commands that start a server use its class.
  if (id.endsWith('/src/index.ts')) return 'api'
  return /\/src\/(\w+)\//.exec(id)?.[1] ?? null
}

/** A chunk includes its imports, unless an earlier one has them: lower layers come first. */
const SHARED = ['protobuf', 'native', 'log', 'cli', 'config', 'metrics', 'repository', 'trace', 'api']
// Commands other than serving are read when they are called.
const CHUNKS = SHARED.concat(
  'cli_version',
  'cli_help_command',
  'yaml',
  'tools_clients',
  'tools',
  'doctor',
  'metrics_process',
  'metrics_server',
  'trace_opentelemetry',
)

/** Bundles one set of entries. Fails on an unresolved dependency, which users' machines could not import. */
async function pack(options, output) {
  const bundled = await rolldown({
    platform: 'node',
    // The client is a part of the package as it is, and dist/ imports it from there.
    external: (id) => id.startsWith('node:') || id === 'nereid/client',
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
    input: {
      index: 'src/index.ts',
      'shm/index': 'src/shm/index.ts',
      'embed/index': 'src/embed/index.ts',
      internal: 'src/internal.ts',
      'cli/main': 'src/cli/main.ts',
    },
    // A command takes from the list only what it names, or `nereid bench` would read the server.
    treeshake: { moduleSideEffects: [{ test: /\/src\/(?!cli\/main\.ts)/, sideEffects: false }] },
    // Prefer a package's ES modules: unused parts of CommonJS cannot be dropped.
    resolve: {
      extensionAlias: { '.js': ['.ts', '.js'] },
      mainFields: ['module', 'main'],
      // It offers only CommonJS to Node.
      alias: { yaml: join(root, 'node_modules/yaml/browser/dist/index.js') },
    },
  }
  const output = await pack(options, {
    dir: join(root, 'dist'),
    sourcemap: true,
    // Every start reads the comments, and no person does: the source map leads to the sources.
    comments: { legal: true, annotation: false, jsdoc: false },
    // The native module and package.json are two levels up, in dist as in src.
    chunkFileNames: 'lib/[name].js',
    codeSplitting: {
      groups: CHUNKS.map((name, i) => ({ name, test: (id) => chunkOf(id) === name, priority: CHUNKS.length - i })),
    },
  })
  return output.filter((part) => part.type === 'chunk').map((part) => part.fileName)
}

/** The thread that reads a cloud repository: one file, read only by starts with such a repository. */
export async function bundleStoreThread(root) {
  await pack(
    { cwd: root, input: { store_thread: 'src/stores/worker.ts' } },
    { dir: join(root, 'dist/lib'), comments: { legal: true, annotation: false, jsdoc: false } },
  )
}

/** The backend `javascript`: entries of a worker and of a process, and the module of models, which share one chunk. */
export async function bundleRunner(root) {
  const entries = ['index', 'testing', 'worker', 'process', 'hooks']
  const isEntry = (id) => entries.some((name) => id.endsWith(`/src/javascript/${name}.ts`))
  await pack(
    { cwd: root, input: Object.fromEntries(entries.map((name) => [name, `src/javascript/${name}.ts`])) },
    {
      dir: join(root, 'dist/javascript'),
      sourcemap: true,
      comments: { legal: true, annotation: false, jsdoc: false },
      chunkFileNames: '[name].js',
      codeSplitting: {
        // Entries keep their own paths: each runs when it is imported.
        groups: [
          { name: 'runner', test: (id) => !isEntry(id), priority: 1 },
          // Alone, because Node also reads them on a thread that resolves modules.
          { name: 'loader', test: /\/src\/javascript\/hooks\.ts$/, priority: 2 },
        ],
      },
    },
  )
}

/** The client: two entries and a shared chunk, because the browser entry must not import anything of Node. */
export async function bundleClient(root) {
  const output = await pack(
    { cwd: root, input: { index: 'client/src/index.ts', node: 'client/src/node.ts' }, platform: 'neutral' },
    {
      dir: join(root, 'client/dist'),
      comments: { legal: true, annotation: true, jsdoc: false },
      chunkFileNames: '[name].js',
      codeSplitting: {
        groups: [
          { name: 'grpc', test: /\/client\/src\/grpc\//, priority: 1 },
          {
            name: 'client',
            test: /\/client\/src\/(?!index\.ts|node\.ts|grpc\/|http\/(?:node|pool|parser|fetch)\.ts)/,
            priority: 2,
          },
        ],
      },
    },
  )
  const chunks = new Map(output.map((part) => [part.fileName, part.imports ?? []]))
  const reached = (name) => [name, ...(chunks.get(name) ?? []).flatMap(reached)]
  const foreign = reached('index.js').filter((name) => name.startsWith('node:'))
  if (foreign.length > 0) throw new Error(`what browsers take leads to ${foreign.join(', ')}`)
}
