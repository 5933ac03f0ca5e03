/**
 * Test files share their process and the sources in it. What they import of `test/` is theirs: a module that
 * keeps something, or that asks for a hook, does so for each file anew.
 */
import { vi } from 'vitest';

vi.resetModules();
