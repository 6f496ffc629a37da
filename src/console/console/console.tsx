import type { Api } from '../api.js'

export const ConsoleView = ({ api }: { api: Api }) => <h1>Console{api.key}</h1>
