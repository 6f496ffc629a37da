/** Models as TypeScript types, for `connect<Models>()` of `nereid-client`. Pure: the same models give the same text. */

import type { ModelDescription, TensorDescription } from '../../internal.js'

/** First line of every generated file; `--check` requires it. */
export const MARK =
  "// Made by `nereid gen ts` of a server's models. Do not edit: make it again, or compare it with --check."

/** Text of the file; `module` is imported for the client. */
export function typescriptOf(models: readonly ModelDescription[], module: string): string {
  const hasInputs = models.some((model) => model.inputs.length > 0)
  return [
    MARK,
    ...(hasInputs ? ['', `import type { ModelInput } from '${module}'`] : []),
    '',
    '/** Each model: its inputs, the datatypes of its outputs, and whether a request may have several responses. */',
    'export interface Models {',
    // By code points, so that the order is the same everywhere.
    ...[...models].sort((a, b) => (a.name < b.name ? -1 : 1)).flatMap(model),
    '}',
    '',
  ].join('\n')
}

function model({ name, inputs, outputs, maxBatchSize, decoupled }: ModelDescription): string[] {
  const rows = maxBatchSize > 0 ? [`  /** The first dimension is the batch, of at most ${maxBatchSize}. */`] : []
  return [
    ...rows,
    `  ${key(name)}: {`,
    ...members(
      'inputs',
      inputs,
      (input) =>
        `${key(input.name)}${input.optional ? '?' : ''}: ModelInput<${text(input.datatype)}, ${shape(input.shape)}>`,
    ),
    ...members('outputs', outputs, (output) => `${key(output.name)}: ${text(output.datatype)}`),
    `    decoupled: ${decoupled}`,
    '  }',
  ]
}

function members(
  name: string,
  tensors: readonly TensorDescription[],
  line: (tensor: TensorDescription) => string,
): string[] {
  // An interface without members would accept anything.
  if (tensors.length === 0) return [`    ${name}: Record<never, never>`]
  return [`    ${name}: {`, ...tensors.map((tensor) => `      ${line(tensor)}`), '    }']
}

const shape = (dims: readonly number[]) => `[${dims.map((size) => (size < 0 ? 'number' : String(size))).join(', ')}]`

const key = (name: string) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : text(name))

/** A TypeScript string: JSON's escapes are valid in it; line ends and reordering are escaped too. */
const text = (value: string) => {
  const escaped = JSON.stringify(value).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")
  const unicode = (one: string) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`
  return `'${escaped.replaceAll(/[\u2028\u2029\p{Bidi_Control}]/gu, unicode)}'`
}
