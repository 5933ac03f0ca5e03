// All conformance cases, in the order of the stack.

import { ddpChecks } from './ddp-checks.ts';
import { ddpSegments } from './ddp-segments.ts';
import type { Case } from './define.ts';
import { mpaFpdu } from './mpa-fpdu.ts';
import { mpaMarkers } from './mpa-markers.ts';
import { mpaReply } from './mpa-reply.ts';
import { mpaRequest } from './mpa-request.ts';
import { rdmapHeaders } from './rdmap-headers.ts';
import { rdmapReads } from './rdmap-reads.ts';

export type { Case } from './define.ts';

export const cases: readonly Case[] = [...mpaRequest, ...mpaReply, ...mpaFpdu, ...mpaMarkers, ...ddpChecks, ...ddpSegments, ...rdmapHeaders, ...rdmapReads];
