from barnabas.common import linux

linux.require()
