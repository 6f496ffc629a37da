/** The record of one request (docs/why.md) in words. */

import { behindText, causeOf } from '../../tools/why/words.js'
import { Phases } from '../console/parts.js'
import type { RequestRecord } from '../contract.js'
import { timeText } from '../format.js'

export function RecordView({ record }: { record: RequestRecord }) {
  const { total_us: total = 0, phases_us: phases = {}, cause = '', batch = 0, behind } = record
  const other = behind === undefined ? '' : [behind.model, behind.version].filter(Boolean).join(' version ')
  return (
    <section class="record">
      <h3>
        Where the time went <span class="quiet">{timeText(total)} in the server</span>
      </h3>
      <Phases phases={phases} isLong />
      {other !== '' && <p>{behindText(other)}</p>}
      {cause !== '' && (
        <p>
          Its batch of {batch || 1} {batch > 1 ? 'rows' : 'row'} began because {causeOf(cause)}.
        </p>
      )}
    </section>
  )
}
