// All conformance cases, in the order of the stack.

import { ddpChecks } from './ddp-checks.ts';
import { ddpSegments } from './ddp-segments.ts';
import type { Case } from './define.ts';
import { enhReply } from './enh-reply.ts';
import { enhRequest } from './enh-request.ts';
import { ext } from './ext.ts';
import { mpaFpdu } from './mpa-fpdu.ts';
import { mpaMarkers } from './mpa-markers.ts';
import { mpaReply } from './mpa-reply.ts';
import { mpaRequest } from './mpa-request.ts';
import { rdmapHeaders } from './rdmap-headers.ts';
import { rdmapReads } from './rdmap-reads.ts';
import { sec } from './sec.ts';

export type { Case } from './define.ts';

export const cases: readonly Case[] = [
  ...mpaRequest,
  ...mpaReply,
  ...enhRequest,
  ...enhReply,
  ...mpaFpdu,
  ...mpaMarkers,
  ...ddpChecks,
  ...ddpSegments,
  ...rdmapHeaders,
  ...rdmapReads,
  ...ext,
  ...sec,
];
