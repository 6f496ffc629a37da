import type { Api } from '../api.js'

export const HomeView = ({ api }: { api: Api }) => <h1>Server{api.key}</h1>
