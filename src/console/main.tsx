/** The page at `/`, `/docs` and `/console`: one script and one style, and a view for each path. */

import { render } from 'preact'
import { useEffect, useLayoutEffect, useState } from 'preact/hooks'
import { Api } from './api.js'
import { ConsoleView } from './console/console.js'
import { DocsView } from './docs/docs.js'
import { HomeView } from './home/home.js'
import { Shell, focusHeading } from './shell.js'

const VIEWS = [
  { path: '/', title: 'Server', View: HomeView },
  { path: '/console', title: 'Console', View: ConsoleView },
  { path: '/docs', title: 'HTTP API', View: DocsView },
]

const viewOf = ({ pathname }: { pathname: string }) =>
  VIEWS.find(({ path }) => path === pathname.replace(/(?<=.)\/$/, ''))

/** Everything of an address but the fragment, which is the view's own. */
const placeOf = ({ pathname, search }: { pathname: string; search: string }): string => `${pathname}${search}`

const api = new Api()

/** Views are changed without loading the page again, which would forget the key. */
function App() {
  const [place, setPlace] = useState(placeOf(location))
  useEffect(() => {
    const moved = () => setPlace(placeOf(location))
    const clicked = (event: MouseEvent) => {
      const link = event.target instanceof Element ? event.target.closest('a') : null
      const isOurs = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey
      if (link === null || !isOurs || link.target !== '' || link.origin !== location.origin) return
      if (viewOf(link) === undefined || placeOf(link) === placeOf(location)) return
      event.preventDefault()
      history.pushState(null, '', link.href)
      moved()
    }
    addEventListener('popstate', moved)
    document.addEventListener('click', clicked)
    return () => {
      removeEventListener('popstate', moved)
      document.removeEventListener('click', clicked)
    }
  }, [])
  const { path, title, View } = viewOf(location) ?? { path: '/', title: 'Server', View: HomeView }
  const [first] = useState(place)
  const [isMoved, setMoved] = useState(false)
  // Before the effects of the view, which may know a better title.
  useLayoutEffect(() => {
    document.title = `${title} · Nereid`
    if (place !== first || isMoved) focusHeading()
    if (place !== first) setMoved(true)
  }, [place])
  return (
    <Shell views={VIEWS} path={path}>
      <View key={place} api={api} />
    </Shell>
  )
}

const root = document.getElementById('app')
if (root !== null) {
  root.replaceChildren()
  render(<App />, root)
}
