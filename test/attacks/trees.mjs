/** Model files of trees that announce what they do not have, go in rings, or are very deep. */
import { writeFileSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { server } from './lib/servers.mjs'

const DEEP = 100_000
const FILES = {
  xgboost: 'xgboost.model', xgboost_json: 'xgboost.json', xgboost_ubj: 'xgboost.ubj', lightgbm: 'model.txt',
  treelite_checkpoint: 'checkpoint.tl',
}

/** An XGBoost model of one tree; leaves have no children. */
function json({ left, right, more = '', features = '2' }) {
  const list = (of) => JSON.stringify(left.map(of))
  const tree = `{"left_children":${JSON.stringify(left)},"right_children":${JSON.stringify(right)},` +
    `"split_indices":${list(() => 0)},"split_conditions":${list(() => 0.5)},"default_left":${list(() => 0)}${more}}`
  const learner = `"gradient_booster":{"name":"gbtree","model":{"trees":[${tree}],"tree_info":[0]}},` +
    `"learner_model_param":{"base_score":"5E-1","num_class":"0","num_feature":"${features}"},` +
    '"objective":{"name":"reg:squarederror"}'
  return Buffer.from(`{"learner":{${learner}}}`)
}

/** A path of `depth` comparisons, each with a leaf beside it. */
function path(depth) {
  const left = [], right = []
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
    int(0), int(2), Buffer.alloc(128), long(16), Buffer.from('reg:squarederror'), long(6), Buffer.from('gbtree'),
    int(trees), Buffer.alloc(156), int(1), int(nodes), Buffer.alloc(140)
  ])

/** Name → `model_type`, the file, and what its load says. */
const ODD = {
  empty: ['xgboost_json', Buffer.alloc(0), /byte 0: an object was expected/],
  brackets: ['xgboost_json', Buffer.from(`{"learner":${'['.repeat(5_000_000)}`), /byte \d+/],
  skipped: [
    'xgboost_json', Buffer.from(`{"x":${'['.repeat(2_500_000)}${']'.repeat(2_500_000)}}`),
    /there is no member 'learner'/
  ],
  ring: ['xgboost_json', json({ left: [1, 0, -1], right: [2, 2, -1] }), /node \d is the child of two nodes/],
  nowhere: [
    'xgboost_json', json({ left: [4_000_000_000], right: [1] }),
    /node \d+ is named as a child, and the tree has 1 nodes/
  ],
  deep: ['xgboost_json', json(path(DEEP)), /a path of more than \d+ comparisons/],
  categories: [
    'xgboost_json',
    json({
      left: [1, -1, -1], right: [2, -1, -1],
      more: `,"split_type":[1,0,0],"categories_nodes":[0],"categories_segments":[0],"categories_sizes":[200000],` +
        `"categories":[${Array.from({ length: 200_000 }, (_, i) => 2 * i)}]`,
    }),
    /a set of categories counts two for each run of neighbours/,
  ],
  features: [
    'xgboost_json', json({ left: [-1], right: [-1], features: '4000000000' }),
    /the model has 4000000000 features, it may have 1 to \d+/
  ],
  ub_count: [
    'xgboost_ubj',
    Buffer.concat([Buffer.from('{L'), long(0).reverse(), Buffer.from('[$d#L'), Buffer.from('7fffffffffffffff', 'hex')]),
    /are announced, and the file has 0 more|byte \d+/
  ],
  ub_nothing: [
    'xgboost_ubj', Buffer.concat([Buffer.from('{U\u0001x[$Z#L'), Buffer.from('7fffffffffffffff', 'hex')]),
    /a container whose elements have no bytes/
  ],
  ub_nested: [
    'xgboost_ubj', Buffer.from(`{U\u0001x${'['.repeat(5_000_000)}`), /more than \d+ containers inside each other/
  ],
  nodes: ['xgboost', binary(1, 2_000_000_000), /2000000000 × 20 bytes are announced, and the file has 0 more/],
  trees: ['xgboost', binary(2_000_000_000, 1), /are announced, and the file has 0 more/],
  leaves: ['lightgbm', lightgbm(['num_leaves=1000000000', 'leaf_value=1']), /1000000000 leaves/],
  bits: [
    'lightgbm',
    lightgbm([
      'num_leaves=2', 'num_cat=1', 'leaf_value=1 2', 'cat_boundaries=0 18446744073709551615', 'cat_threshold=1'
    ]),
    /18446744073709551615 words of categories/
  ],
  lists: [
    'treelite_checkpoint',
    Buffer.concat([
      int(4), int(0), int(0), Buffer.from([2, 2]), long(1), int(2), Buffer.from([1, 0]), int(1), long(2n ** 60n)
    ]),
    /a list of 1152921504606846976 items/
  ],
  count: [
    'treelite_checkpoint', Buffer.concat([int(4), int(0), int(0), Buffer.from([2, 2]), long(2n ** 63n)]),
    /9223372036854775808 trees/
  ],
}

const odd = server('odd trees', {
  flags: ['--model-control-mode=explicit', '--load-model=simple'],
  models: (root) => {
    for (const [name, [type, file]] of Object.entries(ODD)) {
      mkdirSync(join(root, name, '1'), { recursive: true })
      writeFileSync(join(root, name, '1', FILES[type]), file)
      const parameter = (key, value) => `parameters { key: "${key}" value { string_value: "${value}" } }`
      writeFileSync(
        join(root, name, 'config.pbtxt'),
        `backend: "fil" max_batch_size: 8 ${parameter('model_type', type)} ${parameter('is_classifier', 'false')}`,
      )
    }
  },
})

export const rows = [
  {
    attack:
      'models of trees that announce 2^60 items, 2 billion nodes and a billion leaves, go in rings, are ' +
      `${DEEP.toLocaleString('en')} nodes deep, have sets of 200,000 categories, or 5 million brackets`,
    limit:
      'Sizes in a file are compared with the file before an allocation, and no reader recurses. Limits are ' +
      '`FILE_BYTES_MAX`, `TREES_MAX`, `NODES_MAX`, `DEPTH_MAX`, `FEATURES_MAX`, `OUTPUTS_MAX`, `TEXT_BYTES_MAX` and ' +
      '`NESTING_MAX` of `trees::limits`.',
    server: odd,
    async run(t) {
      const before = t.rssMiB()
      let worst = 0
      for (const [name, [, , text]] of Object.entries(ODD)) {
        const from = performance.now()
        const answer = await t.post(`/v2/repository/models/${name}/load`, '{}')
        worst = Math.max(worst, performance.now() - from)
        t.check(
          answer.status !== 200 && text.test(answer.text), `${name}: ${answer.status} ${answer.text.slice(0, 300)}`,
        )
      }
      t.check(worst < 20_000, `the slowest load took ${worst} ms`)
      const grown = t.rssMiB() - before
      t.check(grown < 256, `resident memory grew by ${grown.toFixed(0)} MiB`)
      return `${Object.keys(ODD).length} models, slowest answer ${worst.toFixed(0)} ms, +${grown.toFixed(0)} MiB`
    },
  },
]
