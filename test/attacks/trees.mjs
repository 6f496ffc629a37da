/** Trees: files that announce what they do not have, go in rings, or are very deep; runs of many rows and threads. */
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { server } from './lib/servers.mjs'
import { until } from './lib/wait.mjs'

const DEEP = 100_000
const FILES = {
  xgboost: 'xgboost.model',
  xgboost_json: 'xgboost.json',
  xgboost_ubj: 'xgboost.ubj',
  lightgbm: 'model.txt',
  treelite_checkpoint: 'checkpoint.tl',
}

/** An XGBoost model of one tree; leaves have no children. */
function json({ left, right, more = '', features = '2' }) {
  const list = (of) => JSON.stringify(left.map(of))
  const tree =
    `{"left_children":${JSON.stringify(left)},"right_children":${JSON.stringify(right)},` +
    `"split_indices":${list(() => 0)},"split_conditions":${list(() => 0.5)},"default_left":${list(() => 0)}${more}}`
  const learner =
    `"gradient_booster":{"name":"gbtree","model":{"trees":[${tree}],"tree_info":[0]}},` +
    `"learner_model_param":{"base_score":"5E-1","num_class":"0","num_feature":"${features}"},` +
    '"objective":{"name":"reg:squarederror"}'
  return Buffer.from(`{"learner":{${learner}}}`)
}

/** A path of `depth` comparisons, each with a leaf beside it. */
function path(depth) {
  const left = [],
    right = []
  for (let i = 0; i < depth; i++) {
    left.push(2 * i + 1, -1)
    right.push(2 * i + 2, -1)
  }
  // Leaves are the odd ones, the next comparison is behind each.
  return { left: [...left, -1], right: [...right, -1] }
}

const lightgbm = (lines) =>
  Buffer.from(
    `tree\nnum_class=1\nmax_feature_idx=1\nobjective=regression\n\nTree=0\n${lines.join('\n')}\n\nend of trees\n`,
  )
const long = (value) => {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(BigInt(value))
  return bytes
}
const int = (value) => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32LE(value)
  return bytes
}
/** LearnerModelParam, names, GBTreeModelParam and the head of a tree, as XGBoost's binary format has them. */
const binary = (trees, nodes) =>
  Buffer.concat([
    int(0),
    int(2),
    Buffer.alloc(128),
    long(16),
    Buffer.from('reg:squarederror'),
    long(6),
    Buffer.from('gbtree'),
    int(trees),
    Buffer.alloc(156),
    int(1),
    int(nodes),
    Buffer.alloc(140),
  ])

/** Name → `model_type`, the file, and what its load says. */
const ODD = {
  empty: ['xgboost_json', Buffer.alloc(0), /byte 0: an object was expected/],
  brackets: ['xgboost_json', Buffer.from(`{"learner":${'['.repeat(5_000_000)}`), /byte \d+/],
  skipped: [
    'xgboost_json',
    Buffer.from(`{"x":${'['.repeat(2_500_000)}${']'.repeat(2_500_000)}}`),
    /there is no member 'learner'/,
  ],
  ring: ['xgboost_json', json({ left: [1, 0, -1], right: [2, 2, -1] }), /node \d is the child of two nodes/],
  nowhere: [
    'xgboost_json',
    json({ left: [4_000_000_000], right: [1] }),
    /node \d+ is named as a child, and the tree has 1 nodes/,
  ],
  deep: ['xgboost_json', json(path(DEEP)), /a path of more than \d+ comparisons/],
  categories: [
    'xgboost_json',
    json({
      left: [1, -1, -1],
      right: [2, -1, -1],
      more:
        `,"split_type":[1,0,0],"categories_nodes":[0],"categories_segments":[0],"categories_sizes":[200000],` +
        `"categories":[${Array.from({ length: 200_000 }, (_, i) => 2 * i)}]`,
    }),
    /a set of categories counts two for each run of neighbours/,
  ],
  leaf_values: [
    'xgboost_json',
    json({
      left: [1, -1, -1],
      right: [2, 0, 0],
      more: `,"tree_param":{"size_leaf_vector":"100000"},"leaf_weights":[${'0,'.repeat(99_999)}0]`,
    }),
    /its values also belong to another node/,
  ],
  leaf_vectors: [
    'treelite_checkpoint',
    Buffer.concat([
      int(4),
      int(0),
      int(0),
      Buffer.from([2, 2]),
      long(0),
      int(2),
      Buffer.from([2, 1]),
      int(1),
      long(1),
      int(3),
      long(2),
      int(1),
      int(2_000_000_000),
      long(0),
      long(0),
      long(8),
      Buffer.from('identity'),
      Buffer.alloc(8),
      long(0),
      long(0),
      int(0),
    ]),
    /leaves of shape \[1, 2000000000\] for 3 classes or targets/,
  ],
  features: [
    'xgboost_json',
    json({ left: [-1], right: [-1], features: '4000000000' }),
    /the model has 4000000000 features: 1 to \d+ are supported/,
  ],
  ub_count: [
    'xgboost_ubj',
    Buffer.concat([Buffer.from('{L'), long(0).reverse(), Buffer.from('[$d#L'), Buffer.from('7fffffffffffffff', 'hex')]),
    /are announced, but the file has only 0 more|byte \d+/,
  ],
  ub_nothing: [
    'xgboost_ubj',
    Buffer.concat([Buffer.from('{U\u0001x[$Z#L'), Buffer.from('7fffffffffffffff', 'hex')]),
    /a container whose elements have no bytes/,
  ],
  ub_nested: [
    'xgboost_ubj',
    Buffer.from(`{U\u0001x${'['.repeat(5_000_000)}`),
    /more than \d+ containers inside each other/,
  ],
  nodes: ['xgboost', binary(1, 2_000_000_000), /2000000000 × 20 bytes are announced, but the file has only 0 more/],
  trees: ['xgboost', binary(2_000_000_000, 1), /are announced, but the file has only 0 more/],
  leaves: ['lightgbm', lightgbm(['num_leaves=1000000000', 'leaf_value=1']), /1000000000 leaves/],
  bits: [
    'lightgbm',
    lightgbm([
      'num_leaves=2',
      'num_cat=1',
      'leaf_value=1 2',
      'cat_boundaries=0 18446744073709551615',
      'cat_threshold=1',
    ]),
    /18446744073709551615 words of categories/,
  ],
  lists: [
    'treelite_checkpoint',
    Buffer.concat([
      int(4),
      int(0),
      int(0),
      Buffer.from([2, 2]),
      long(1),
      int(2),
      Buffer.from([1, 0]),
      int(1),
      long(2n ** 60n),
    ]),
    /a list of 1152921504606846976 items/,
  ],
  count: [
    'treelite_checkpoint',
    Buffer.concat([int(4), int(0), int(0), Buffer.from([2, 2]), long(2n ** 63n)]),
    /9223372036854775808 trees/,
  ],
}

const parameter = (key, value) => `parameters { key: "${key}" value { string_value: "${value}" } }`

function writeTrees(root, name, type, file, rowsMax, more = '') {
  mkdirSync(join(root, name, '1'), { recursive: true })
  writeFileSync(join(root, name, '1', FILES[type]), file)
  const parameters = `${parameter('model_type', type)} ${parameter('is_classifier', 'false')}`
  writeFileSync(join(root, name, 'config.pbtxt'), `backend: "fil" max_batch_size: ${rowsMax} ${parameters} ${more}`)
}

const odd = server('odd trees', {
  flags: ['--model-control-mode=explicit', '--load-model=simple'],
  models: (root) => {
    for (const [name, [type, file]] of Object.entries(ODD)) writeTrees(root, name, type, file, 8)
  },
})

const INSTANCES = 16
const THREADS = 256
const ROWS = 200_000

const threaded = server('trees with many threads', {
  models: (root) =>
    writeTrees(
      root,
      'many',
      'xgboost_json',
      json(path(1000)),
      ROWS,
      `${parameter('cpu_nthread', THREADS)} instance_group [ { count: ${INSTANCES} kind: KIND_CPU } ]`,
    ),
})

/** Rows that take all comparisons. */
function longRows() {
  const values = Buffer.from(new Float32Array(2 * ROWS).fill(1).buffer)
  const input = {
    name: 'input__0',
    shape: [ROWS, 2],
    datatype: 'FP32',
    parameters: { binary_data_size: values.length },
  }
  const outputs = [{ name: 'output__0', parameters: { binary_data: true } }]
  const head = Buffer.from(JSON.stringify({ inputs: [input], outputs }))
  return [Buffer.concat([head, values]), { 'inference-header-content-length': `${head.length}` }]
}

export const rows = [
  {
    attack:
      'models of trees that announce 2^60 items, 2 billion nodes and a billion leaves, go in rings, are ' +
      `${DEEP.toLocaleString('en')} nodes deep, have sets of 200,000 categories, leaves of 2 billion values or with ` +
      'those of other leaves, or 5 million brackets',
    limit:
      'Sizes in a file are compared with the file before an allocation, and no reader recurses. Limits are ' +
      '`FILE_BYTES_MAX`, `TREES_MAX`, `NODES_MAX`, `LEAF_VALUES_MAX`, `DEPTH_MAX`, `FEATURES_MAX`, `OUTPUTS_MAX`, ' +
      '`TEXT_BYTES_MAX` and `NESTING_MAX` of `trees::limits`.',
    server: odd,
    async run(t) {
      const before = t.rssMiB()
      let worst = 0
      for (const [name, [, , text]] of Object.entries(ODD)) {
        const from = performance.now()
        const answer = await t.post(`/v2/repository/models/${name}/load`, '{}')
        worst = Math.max(worst, performance.now() - from)
        t.check(
          answer.status !== 200 && text.test(answer.text),
          `${name}: ${answer.status} ${answer.text.slice(0, 300)}`,
        )
      }
      t.check(worst < 20_000, `the slowest load took ${worst} ms`)
      const grown = t.rssMiB() - before
      t.check(grown < 256, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `${Object.keys(ODD).length} models, slowest answer ${worst.toFixed(0)} ms, +${grown.toFixed(0)} MiB`
    },
  },
  {
    attack: `${INSTANCES} requests at once for ${ROWS.toLocaleString('en')} rows of trees with cpu_nthread ${THREADS}`,
    limit: 'All runs of trees together have at most one more thread for each CPU but one (`Helper`).',
    server: threaded,
    async run(t) {
      const helpers = () =>
        readdirSync(`/proc/${t.pid}/task`).filter((id) => {
          try {
            return readFileSync(`/proc/${t.pid}/task/${id}/comm`, 'latin1') === 'nereid-trees\n'
          } catch {
            // It has ended.
            return false
          }
        }).length
      let most = 0
      let answered = 0
      const requests = Array.from({ length: INSTANCES }, async () => {
        const { status, text } = await t.post('/v2/models/many/infer', ...longRows())
        t.check(status === 200, `${status} ${text.slice(0, 300)}`)
        answered += 1
      })
      await until(() => ((most = Math.max(most, helpers())), answered === INSTANCES), { seconds: 100, everyMs: 2 })
      await Promise.all(requests)
      // One that ends may still be seen beside the next.
      t.check(most < availableParallelism() + INSTANCES, `${most} threads helped at once`)
      t.check(await until(() => helpers() === 0), 'a thread outlives its run')
      return `at most ${most} threads helped`
    },
  },
]
