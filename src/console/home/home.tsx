/** `/`: what this server is, whether it is ready, and its models. */

import { useState } from 'preact/hooks'
import type { Api } from '../api.js'
import { State, fragmentOf } from '../console/models.js'
import { Section, Table } from '../console/parts.js'
import type { IndexRow } from '../contract.js'
import { numberText } from '../format.js'
import { Waiting, useReply } from '../reply.js'

interface Home {
  name: string
  version: string
  implementation: { name: string; version: string }
  ready: boolean
  models: readonly IndexRow[]
  links: { docs: string; openapi: string; metrics?: string }
}

/** Rows that are drawn; the filter finds the others. */
const ROWS_MAX = 200
/** From this number on there is a filter. */
const FILTERED_FROM = 12

const COLUMNS = ['model', 'version', 'state', 'reason'].map((title) => ({ title }))
const INIT = { headers: { accept: 'application/json' } }

export function HomeView({ api }: { api: Api }) {
  const { value, error } = useReply<Home>(api, '/', INIT)
  if (value === null) return <Waiting api={api} title="Nereid" path="/" error={error} />
  const { implementation, name, version, ready, models, links } = value
  return (
    <div class="page">
      <h1>
        {implementation.name} <small>{implementation.version}</small>
      </h1>
      <p>
        The server is <strong class={ready ? 'good' : 'bad'}>{ready ? 'ready' : 'not ready'}</strong>. Its clients see
        the API of <code>{name}</code> <code>{version}</code>.
      </p>
      <ul class="links">
        <li>
          <a href="/console">Console</a>: what it does now, and what is slow
        </li>
        <li>
          <a href={links.docs}>HTTP API</a>, from its <a href={links.openapi}>OpenAPI description</a>
        </li>
        {links.metrics !== undefined && (
          <li>
            <a href={links.metrics}>Metrics</a> for Prometheus
          </li>
        )}
      </ul>
      <Models models={models} />
    </div>
  )
}

function Models({ models }: { models: readonly IndexRow[] }) {
  const [filter, setFilter] = useState('')
  const found = models.filter(({ name }) => name.includes(filter))
  return (
    <Section id="models" title="Models">
      {models.length >= FILTERED_FROM && (
        <label class="block">
          filter by name{' '}
          <input
            type="search"
            autocomplete="off"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </label>
      )}
      {models.length === 0 ? (
        <p>No models.</p>
      ) : (
        <Table
          caption="Models, their versions and states"
          columns={COLUMNS}
          rows={found.slice(0, ROWS_MAX).map(({ name, version = '', state = '', reason = '' }) => ({
            key: `${name}\0${version}`,
            cells: [
              <a class="words" href={`/console${fragmentOf(name, version)}`}>
                {name}
              </a>,
              version,
              <State version={{ state, reason }} />,
              <span class="words">{reason}</span>,
            ],
          }))}
        />
      )}
      {found.length > ROWS_MAX && (
        <p class="quiet">And {numberText(found.length - ROWS_MAX)} more: type a part of a name.</p>
      )}
    </Section>
  )
}
