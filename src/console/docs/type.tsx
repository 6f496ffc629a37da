/** A schema in one line, with links to other schemas. */

import { Fragment } from 'preact'
import { nameOfRef, type Schema } from './schema.js'

export function SchemaText({ schema }: { schema: Schema | boolean }) {
  if (typeof schema === 'boolean') return <>{schema ? 'anything' : 'nothing'}</>
  if (schema.$ref !== undefined) {
    const name = nameOfRef(schema.$ref)
    return <a href={`#schema-${encodeURIComponent(name)}`}>{name}</a>
  }
  if (schema.const !== undefined) return <code>{JSON.stringify(schema.const)}</code>
  if (schema.enum !== undefined)
    return (
      <Joined
        word=" or "
        parts={schema.enum.map((value) => (
          <code>{JSON.stringify(value)}</code>
        ))}
      />
    )
  const choice = schema.anyOf ?? schema.oneOf
  if (choice !== undefined)
    return (
      <Joined
        word=" or "
        parts={choice.map((one) => (
          <SchemaText schema={one} />
        ))}
      />
    )
  if (schema.type === 'array') {
    if (schema.prefixItems === undefined)
      return (
        <>
          list of <SchemaText schema={schema.items ?? true} />
        </>
      )
    return (
      <>
        [
        <Joined
          word=", "
          parts={schema.prefixItems.map((one) => (
            <SchemaText schema={one} />
          ))}
        />
        ]
      </>
    )
  }
  const type = schema.format ?? [schema.type ?? 'anything'].flat().join(' or ')
  const from = schema.minimum === undefined ? '' : ` from ${schema.minimum}`
  return (
    <>
      {type}
      {from}
      {schema.maximum === undefined ? '' : ` to ${schema.maximum}`}
    </>
  )
}

const Joined = ({ word, parts }: { word: string; parts: readonly preact.JSX.Element[] }) => (
  <>
    {parts.map((part, i) => (
      <Fragment key={i}>
        {i > 0 && word}
        {part}
      </Fragment>
    ))}
  </>
)
