// All conformance cases, in the order of the stack.

import { mpaRequest } from './mpa-request.ts';
import { mpaReply } from './mpa-reply.ts';
import type { Case } from './define.ts';

export type { Case } from './define.ts';

export const cases: readonly Case[] = [...mpaRequest, ...mpaReply];
