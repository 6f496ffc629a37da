import type { Api } from '../api.js'

export const DocsView = ({ api }: { api: Api }) => <h1>HTTP API{api.key}</h1>
