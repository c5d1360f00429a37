#!/bin/sh
# Run one Cassandra node of several in this process; /etc/replica holds its configuration and its clock's offset.
set -eu
export LD_PRELOAD=/opt/clock.so
exec java "-Xms$CASSANDRA_HEAP" "-Xmx$CASSANDRA_HEAP" -XX:MaxDirectMemorySize=128m @/opt/cassandra/etc/jvm17.options \
  -XX:SharedArchiveFile=/opt/cassandra/classes.jsa -Xshare:auto -XX:TieredStopAtLevel=1 \
  "-javaagent:$(echo /opt/cassandra/lib/jamm-*.jar)" \
  -Dcassandra.config=file:///etc/replica/cassandra.yaml -Dcassandra-rackdc.properties=file:///etc/replica/rackdc.properties \
  -Dcassandra.storagedir=/var/lib/cassandra -Dlogback.configurationFile=file:///opt/cassandra/etc/logback.xml \
  -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=0 -Dcassandra.consistent.rangemovement=false \
  -Djava.io.tmpdir=/tmp -Djna.tmpdir=/tmp -Duser.home=/tmp -Dcassandra-foreground=yes \
  -cp "$(printf '%s:' /opt/cassandra/lib/*.jar)" org.apache.cassandra.service.CassandraDaemon
