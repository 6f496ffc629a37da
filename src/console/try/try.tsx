import type { Api } from '../api.js'

export const TryModel = ({ model }: { model: string; version?: string; api: Api }) => <p>{model}</p>
