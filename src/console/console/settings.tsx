/** Settings of the running server, and models by name, where the key allows them. */

import { useState } from 'preact/hooks'
import type { Api } from '../api.js'
import { ONLY_GRPC, isInPaths } from '../format.js'
import { OutcomeText, Section, useAction, useAsked } from './parts.js'
import type { Picture } from './picture.js'

/** Why there is no button to load a model. */
export const BY_HAND = 'The server loads what its repository has; loading by hand needs --model-control-mode=explicit.'

type Values = Readonly<Record<string, unknown>>

interface Field {
  name: string
  label: string
  /** A checkbox, the form of a number, or a choice. */
  kind: 'check' | RegExp | readonly string[]
  /** The number in words. */
  wants?: string
}

const LOGGING: readonly Field[] = [
  { name: 'log_error', label: 'Errors', kind: 'check' },
  { name: 'log_warning', label: 'Warnings', kind: 'check' },
  { name: 'log_info', label: 'Informational lines', kind: 'check' },
  { name: 'log_verbose_level', label: 'Verbose level', kind: /^\d{1,9}$/, wants: 'a whole number from 0' },
]

/** Triton sends and takes these values as texts, the level as a list. */
const TRACING: readonly Field[] = [
  { name: 'trace_level', label: 'Level', kind: ['OFF', 'TIMESTAMPS', 'TENSORS'] },
  {
    name: 'trace_rate',
    label: 'Requests per trace',
    kind: /^[1-9]\d{0,8}$/,
    wants: 'a whole number from 1',
  },
  {
    name: 'trace_count',
    label: 'Remaining traces (-1: unlimited)',
    kind: /^(-1|\d{1,9})$/,
    wants: 'a whole number from 0, or -1',
  },
]

export function Settings({ picture: { hello }, api }: { picture: Picture; api: Api }) {
  if (hello === null) return null
  const { load, logging, trace } = hello.may
  return (
    <Section id="settings" title="Settings">
      {!load && !logging && !trace && <p class="quiet">This key may change nothing.</p>}
      <div class="columns">
        {load && <LoadByName api={api} isExplicit={hello.explicit} />}
        {logging && <Form api={api} title="Log" path="/v2/logging" fields={LOGGING} />}
        {trace && <Form api={api} title="Traces" path="/v2/trace/setting" fields={TRACING} />}
      </div>
    </Section>
  )
}

function LoadByName({ api, isExplicit }: { api: Api; isExplicit: boolean }) {
  const [name, setName] = useState('')
  const { busy, outcome, run } = useAction()
  const load = (event: Event) => {
    event.preventDefault()
    run(async () => {
      if (!isInPaths(name)) throw new Error(ONLY_GRPC)
      await api.post(`/v2/repository/models/${encodeURIComponent(name)}/load`, {})
      return `${name}: loaded.`
    })
  }
  return (
    <form onSubmit={load}>
      <h3>Load a model</h3>
      {isExplicit ? (
        <>
          <label for="load-name">Name in the repository</label>
          <input
            id="load-name"
            value={name}
            autocomplete="off"
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <button type="submit" disabled={busy || name === ''}>
            {busy ? 'Loading …' : 'Load'}
          </button>
        </>
      ) : (
        <p class="quiet">{BY_HAND}</p>
      )}
      <OutcomeText outcome={outcome} />
    </form>
  )
}

/** A form of some settings of a route; only changed ones are sent. */
function Form({ api, title, path, fields }: { api: Api; title: string; path: string; fields: readonly Field[] }) {
  const { value, error, again } = useAsked(async () => (await api.json(path)) as Values, 0, path)
  const [changed, setChanged] = useState<Values>({})
  const { busy, outcome, run } = useAction()
  const current = (name: string): unknown => changed[name] ?? [value?.[name]].flat()[0]
  const set = (name: string, to: unknown) => setChanged({ ...changed, [name]: to })
  const wrong = (name: string): string => {
    const field = fields.find((one) => one.name === name)
    return name in changed && field?.kind instanceof RegExp && !field.kind.test(String(changed[name]).trim())
      ? `'${String(changed[name])}' is not ${field.wants}.`
      : ''
  }
  const send = (event: Event) => {
    event.preventDefault()
    run(async () => {
      // Triton takes the level of the log as a number, and other numbers as texts.
      const wanted = Object.fromEntries(
        Object.entries(changed).map(([name, to]) => {
          const text = typeof to === 'string' ? to.trim() : to
          return [name, name === 'trace_level' ? [text] : name === 'log_verbose_level' ? Number(text) : text]
        }),
      )
      const now = (await api.post(path, wanted)) as Values
      again()
      const kept = Object.entries(wanted).filter(([name, to]) => String(now[name]) !== String(to))
      if (kept.length > 0)
        throw new Error(kept.map(([name, to]) => `${name} is ${String(now[name])}, not ${String(to)}.`).join(' '))
      setChanged({})
      return `${title}: changed.`
    })
  }
  return (
    <form onSubmit={send}>
      <h3>{title}</h3>
      {error !== null && <p class="bad">{error}</p>}
      {value !== null &&
        fields.map(({ name, label, kind }) => {
          const id = `setting-${name}`
          const given = current(name)
          if (kind === 'check')
            return (
              <label key={name} class="check">
                <input
                  type="checkbox"
                  checked={given === true}
                  onChange={(event) => set(name, event.currentTarget.checked)}
                />
                {label}
              </label>
            )
          return (
            <div key={name} class="field">
              <label for={id}>{label}</label>
              {kind instanceof RegExp ? (
                <>
                  <input
                    id={id}
                    inputMode="numeric"
                    autocomplete="off"
                    value={String(given ?? '')}
                    aria-invalid={wrong(name) !== ''}
                    aria-describedby={`${id}-says`}
                    onInput={(event) => set(name, event.currentTarget.value)}
                  />
                  <p id={`${id}-says`} class="bad hint">
                    {wrong(name)}
                  </p>
                </>
              ) : (
                <select id={id} value={String(given)} onChange={(event) => set(name, event.currentTarget.value)}>
                  {kind.map((one) => (
                    <option key={one} value={one}>
                      {one}
                    </option>
                  ))}
                </select>
              )}
            </div>
          )
        })}
      <button
        type="submit"
        disabled={busy || Object.keys(changed).length === 0 || fields.some(({ name }) => wrong(name) !== '')}
      >
        {busy ? 'Sending …' : 'Apply'}
      </button>
      <OutcomeText outcome={outcome} />
    </form>
  )
}
