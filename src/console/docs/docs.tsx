/** `/docs`: the HTTP API from the OpenAPI document of this server; `?model=` is about one model. */

import { useEffect, useMemo, useState } from 'preact/hooks'
import type { Api } from '../api.js'
import { Table } from '../console/parts.js'
import { Waiting, useReply } from '../reply.js'
import { TryModel } from '../try/try.js'
import { TryOperation, type Operation, type Parameter } from './operation.js'
import { nameOfRef, type Schema, type Schemas } from './schema.js'
import { SchemaText } from './type.js'

interface Document {
  info: { title: string; version: string }
  tags?: readonly { name: string; description?: string }[]
  paths: Readonly<
    Record<
      string,
      {
        parameters?: readonly Parameter[]
        get?: Operation
        post?: Operation
      }
    >
  >
  components?: { schemas?: Schemas }
}

interface Entry {
  path: string
  method: 'get' | 'post'
  operation: Operation
  parameters: readonly Parameter[]
}

interface Group {
  name: string
  description: string
  entries: Entry[]
}

/** Operations by their tag, in the order of the document. */
function groupsOf({ tags = [], paths }: Document): Group[] {
  const groups = new Map<string, Group>(
    tags.map(({ name, description = '' }) => [name, { name, description, entries: [] }]),
  )
  for (const [path, item] of Object.entries(paths))
    for (const method of ['get', 'post'] as const) {
      const operation = item[method]
      if (operation === undefined) continue
      const name = operation.tags?.[0] ?? 'other'
      const group = groups.get(name) ?? { name, description: '', entries: [] }
      groups.set(name, group)
      const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])]
      group.entries.push({ path, method, operation, parameters })
    }
  return [...groups.values()].filter(({ entries }) => entries.length > 0)
}

export function DocsView({ api }: { api: Api }) {
  const [model] = useState(() => new URLSearchParams(location.search).get('model'))
  const source = `/v2/openapi.json${model === null ? '' : `?model=${encodeURIComponent(model)}`}`
  const { value, error } = useReply<Document>(api, source)
  if (value === null) return <Waiting api={api} title="HTTP API" path={source} error={error} />
  return <Contents document={value} model={model} source={source} api={api} />
}

function Contents({
  document: { info, components, ...rest },
  model,
  source,
  api,
}: {
  document: Document
  model: string | null
  source: string
  api: Api
}) {
  const groups = useMemo(() => groupsOf({ info, ...rest }), [rest.paths])
  const schemas = components?.schemas ?? {}
  const [opened, setOpened] = useState(fragment())
  useEffect(() => {
    document.title = `${info.title} · Nereid`
    const open = () => setOpened(fragment())
    addEventListener('hashchange', open)
    return () => removeEventListener('hashchange', open)
  }, [])
  // After the section that the fragment names is there.
  useEffect(() => document.getElementById(opened)?.scrollIntoView(), [opened])
  return (
    <div class="page">
      <h1>
        {info.title} <small>{info.version}</small>
      </h1>
      <p>
        From the <a href={source}>OpenAPI description</a> of this server.{' '}
        {model !== null && <a href="/docs">The whole API</a>}
      </p>
      {model !== null && (
        <section class="card" aria-labelledby="try">
          <h2 id="try">Try {model}</h2>
          <TryModel model={model} api={api} />
        </section>
      )}
      {groups.map(({ name, description, entries }) => (
        <section key={name} aria-labelledby={`tag-${name}`}>
          <h2 id={`tag-${name}`}>{name}</h2>
          <p class="quiet">{description}</p>
          {entries.map((entry) => (
            <OperationBox
              key={`${entry.method} ${entry.path}`}
              {...entry}
              schemas={schemas}
              api={api}
              isOpen={opened === entry.operation.operationId}
            />
          ))}
        </section>
      ))}
      <section class="schemas" aria-labelledby="schemas">
        <h2 id="schemas">schemas</h2>
        {Object.entries(schemas).map(([name, schema]) => (
          <SchemaBox key={name} name={name} schema={schema} isOpen={opened === `schema-${name}`} />
        ))}
      </section>
    </div>
  )
}

/** The id that the address names. A broken escape is no id. */
function fragment(): string {
  try {
    return decodeURIComponent(location.hash.slice(1))
  } catch {
    return ''
  }
}

/** A closed section has no contents: an open one may have a form, and the document has hundreds of sections. */
function Foldable({
  id,
  isOpen,
  summary,
  children,
}: {
  id: string
  isOpen: boolean
  summary: preact.ComponentChildren
  children: () => preact.ComponentChildren
}) {
  const [open, setOpen] = useState(isOpen)
  useEffect(() => {
    if (isOpen) setOpen(true)
  }, [isOpen])
  return (
    <details id={id} class="operation" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{summary}</summary>
      {open && children()}
    </details>
  )
}

function OperationBox({
  path,
  method,
  operation,
  parameters,
  schemas,
  api,
  isOpen,
}: Entry & {
  schemas: Schemas
  api: Api
  isOpen: boolean
}) {
  const summary = (
    <>
      <b class={`method ${method}`}>{method.toUpperCase()}</b> <code>{path}</code> {operation.summary}
    </>
  )
  return (
    <Foldable id={operation.operationId} isOpen={isOpen} summary={summary}>
      {() => (
        <>
          {parameters.length > 0 && (
            <Rows
              title={`Parameters of ${operation.operationId}`}
              rows={parameters.map((one) => ({
                name: one.name,
                isRequired: one.required === true,
                type: one.in,
                text: one.description ?? one.schema?.description ?? '',
              }))}
            />
          )}
          {operation.requestBody !== undefined && (
            <>
              <h3>Body</h3>
              <Contained content={operation.requestBody.content} />
            </>
          )}
          <h3>Answers</h3>
          {Object.entries(operation.responses).map(([status, { description, $ref, content }]) => (
            <div key={status}>
              <p>
                <strong>{status}</strong> {description ?? nameOfRef($ref ?? '')}
              </p>
              <Contained content={content} />
            </div>
          ))}
          <TryOperation
            path={path}
            method={method}
            operation={operation}
            parameters={parameters}
            schemas={schemas}
            api={api}
          />
        </>
      )}
    </Foldable>
  )
}

const Contained = ({ content = {} }: { content?: Readonly<Record<string, { schema?: Schema }>> | undefined }) => (
  <>
    {Object.entries(content).map(([media, { schema = {} }]) => (
      <p key={media}>
        <code>{media}</code>: <SchemaText schema={schema} />
      </p>
    ))}
  </>
)

interface Row {
  name: string
  isRequired: boolean
  type: preact.ComponentChildren
  text: string
}

const COLUMNS = ['name', 'type', 'meaning'].map((title) => ({ title }))

const Rows = ({ title, rows }: { title: string; rows: readonly Row[] }) => (
  <Table
    caption={title}
    columns={COLUMNS}
    rows={rows.map(({ name, isRequired, type, text }) => ({
      key: name,
      cells: [
        <>
          <code>{name}</code>
          {!isRequired && <span class="quiet"> optional</span>}
        </>,
        type,
        text,
      ],
    }))}
  />
)

function SchemaBox({ name, schema, isOpen }: { name: string; schema: Schema; isOpen: boolean }) {
  const members = Object.entries(schema.properties ?? {})
  return (
    <Foldable id={`schema-${name}`} isOpen={isOpen} summary={<code>{name}</code>}>
      {() => (
        <>
          {schema.description !== undefined && <p>{schema.description}</p>}
          {members.length === 0 ? (
            <p>
              <SchemaText schema={schema} />
            </p>
          ) : (
            <Rows
              title={`Members of ${name}`}
              rows={members.map(([member, of]) => ({
                name: member,
                isRequired: schema.required?.includes(member) === true,
                type: <SchemaText schema={of} />,
                text: of.description ?? '',
              }))}
            />
          )}
        </>
      )}
    </Foldable>
  )
}
