/** The console: what the server does now, in the order in which people on call look. */

import { useEffect, useMemo, useReducer, useRef, useState } from 'preact/hooks'
import type { Api } from '../api.js'
import { ageText, clockText, counted } from '../format.js'
import { KeyForm } from '../shell.js'
import { follow, type Connection } from '../stream.js'
import { Held, findings, isFailed } from './attention.js'
import { ModelPanel } from './model.js'
import { Models, findVersion, fragmentOf } from './models.js'
import { figuresOf, Picture, type Figures } from './picture.js'
import { Failures, Findings, Log, Memory, SlowestRequests, Traffic } from './server.js'
import { Settings } from './settings.js'

/** The model of the panel, in the fragment of the URL: a link to it can be sent, and "back" closes it. */
function opened(): { name: string; version: string } | null {
  const fragment = new URLSearchParams(location.hash.slice(1))
  const name = fragment.get('model')
  return name === null ? null : { name, version: fragment.get('version') ?? '' }
}

const openModel = (name: string, version: string) => {
  location.hash = fragmentOf(name, version)
}

export function ConsoleView({ api }: { api: Api }) {
  const picture = useMemo(() => new Picture(), [])
  const held = useRef(new Held())
  const [, redraw] = useReducer((turn: number) => turn + 1, 0)
  const [connection, setConnection] = useState<Connection>({ is: 'connecting' })
  const [model, setModel] = useState(opened)
  useEffect(() => {
    const moved = () => setModel(opened())
    addEventListener('hashchange', moved)
    return () => removeEventListener('hashchange', moved)
  }, [])
  useEffect(
    () =>
      follow(api, {
        event(name, value) {
          picture.event(name, value)
          redraw(0)
        },
        connection: setConnection,
      }),
    [api],
  )

  const figures = new Map<string, Figures>()
  for (const [key, version] of picture.versions) figures.set(key, figuresOf(version))
  const found = held.current.with(findings(picture), picture)
  const open = model === null ? undefined : findVersion(picture, model.name, model.version)
  const isKnown = picture.now !== null
  const bad = found.filter(({ level }) => level === 'bad').length
  useEffect(() => {
    const before = connection.is === 'lost' ? 'offline – ' : bad > 0 ? `(${bad}) ` : ''
    document.title = `${before}${picture.hello?.server.name ?? 'Console'} · Nereid`
  }, [bad, picture.hello, connection.is])
  return (
    <>
      <Status picture={picture} connection={connection} />
      <p class="hidden" role="status">
        {found.map(({ version, key }) => `${version?.name ?? ''} ${key.split(' ').at(-1)}`).join(', ')}
      </p>
      {model !== null && open === undefined && picture.versions.size > 0 && (
        <p role="alert" class="finding warn">
          There is no model '{model.name}' in this server's repository.
        </p>
      )}
      {connection.is === 'forbidden' && <KeyForm api={api} text={connection.text} />}
      {isKnown && (
        <div class={`console ${connection.is === 'live' ? '' : 'stale'}`}>
          <Findings found={found} picture={picture} isLive={connection.is === 'live'} onOpen={openModel} />
          <Traffic picture={picture} />
          <Models picture={picture} figures={figures} onOpen={openModel} />
          <div class="columns two">
            <Failures picture={picture} onOpen={openModel} />
            <Memory picture={picture} onOpen={openModel} />
          </div>
          <SlowestRequests picture={picture} onOpen={openModel} />
          {picture.hello?.may.logs === true && <Log picture={picture} />}
          <Settings picture={picture} api={api} />
        </div>
      )}
      {open !== undefined && (
        <ModelPanel
          version={open}
          picture={picture}
          api={api}
          onOpen={openModel}
          onClose={() => history.replaceState(null, '', location.pathname) ?? setModel(null)}
        />
      )}
    </>
  )
}

/** The state of the server and of the connection in words; it is read aloud when it changes. */
function statusOf({ hello, now, versions }: Picture, connection: Connection): [kind: string, text: string] {
  if (connection.is === 'lost') {
    const before = now?.draining === true ? 'was draining; ' : ''
    return ['bad', `${before}no connection since ${clockText(connection.since_ms)}, trying again`]
  }
  if (connection.is === 'forbidden') return ['warn', 'a key is needed']
  if (connection.is === 'paused') return ['quiet', 'paused while the page is hidden']
  if (connection.is === 'connecting' || hello === null || now === null) return ['quiet', 'connecting']
  if (now.draining) return ['warn', 'is shutting down: it completes its requests and ends']
  if (now.ready) return ['good', 'ready']
  const loading = [...versions.values()].filter(({ state }) => state === 'LOADING').length
  if (loading > 0) return ['warn', `starting: ${counted(loading, 'version')} ${loading === 1 ? 'is' : 'are'} loading`]
  const failed = [...versions.values()].filter(isFailed).length
  if (failed === 0) return ['bad', 'not ready']
  return ['bad', `not ready: ${counted(failed, 'version')} ${failed === 1 ? 'does' : 'do'} not serve`]
}

function Status({ picture, connection }: { picture: Picture; connection: Connection }) {
  const { hello, now } = picture
  const [kind, text] = statusOf(picture, connection)
  return (
    <header class="status">
      <h1>{hello?.server.name ?? 'Console'}</h1>
      <p role="status">
        <span class={`state ${kind}`}>{text}</span>
      </p>
      {connection.is === 'lost' && <p class="quiet words">{connection.text}</p>}
      {hello !== null && (
        <p class="quiet">
          {location.host} · Nereid {hello.server.nereid}
          {now !== null && ` · up for ${ageText((now.time_ms - hello.started_ms) / 1000)}`}
        </p>
      )}
    </header>
  )
}
