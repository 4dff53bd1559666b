import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue;
import org.apache.kafka.coordinator.group.streams.*;
import org.apache.kafka.coordinator.group.streams.assignor.*;
import org.apache.kafka.coordinator.group.streams.topics.*;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Makes decisions about streams groups with Apache Kafka's classes: a case per line of input, a decision per line. */
public class StreamsDecisions {
    private static final LogContext LOG = new LogContext();

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode made = mapper.readTree(line);
            Object decision;
            switch (made.get("kind").asText()) {
                case "step": decision = step(made); break;
                case "configure": decision = configure(made); break;
                default: decision = assign(made);
            }
            System.out.println(mapper.writeValueAsString(decision));
        }
    }

    /** The step of a member towards its target, in a group with these members. */
    private static Object step(JsonNode made) {
        StreamsGroup group = new StreamsGroup(LOG, new SnapshotRegistry(LOG), "g");
        for (JsonNode member : made.get("members")) {
            group.updateMember(member(member));
        }
        StreamsGroupMember after = new CurrentAssignmentBuilder(group.getMemberOrThrow(made.get("member").asText()))
            .withTargetAssignment(made.get("target_epoch").asInt(), tasks(made.get("target")))
            .withCurrentActiveTaskProcessId(group::currentActiveTaskProcessId)
            .withCurrentStandbyTaskProcessIds(group::currentStandbyTaskProcessIds)
            .withCurrentWarmupTaskProcessIds(group::currentWarmupTaskProcessIds)
            .withOwnedAssignment(made.get("reported").isNull() ? null : tasks(made.get("reported")))
            .build();
        Map<String, Object> found = new TreeMap<>();
        found.put("epoch", after.memberEpoch());
        found.put("previous_epoch", after.previousMemberEpoch());
        found.put("state", after.state().value());
        found.put("assigned", owned(after.assignedTasks()));
        found.put("pending", owned(after.tasksPendingRevocation()));
        return found;
    }

    private static StreamsGroupMember member(JsonNode made) {
        return StreamsGroupMember.Builder.withDefaults(made.get("id").asText())
            .setProcessId(made.get("process").asText())
            .setMemberEpoch(made.get("epoch").asInt())
            .setPreviousMemberEpoch(made.get("previous_epoch").asInt())
            .setState(MemberState.fromValue((byte) made.get("state").asInt()))
            .setAssignedTasks(ownedTasks(made.get("assigned")))
            .setTasksPendingRevocation(ownedTasks(made.get("pending")))
            .build();
    }

    private static TasksTupleWithEpochs ownedTasks(JsonNode made) {
        Map<String, Map<Integer, Integer>> active = new HashMap<>();
        made.get(0).fields().forEachRemaining(entry -> {
            Map<Integer, Integer> epochs = new HashMap<>();
            entry.getValue().fields().forEachRemaining(e -> epochs.put(Integer.valueOf(e.getKey()), e.getValue().asInt()));
            active.put(entry.getKey(), epochs);
        });
        return new TasksTupleWithEpochs(active, partitions(made.get(1)), partitions(made.get(2)));
    }

    private static TasksTuple tasks(JsonNode made) {
        return new TasksTuple(partitions(made.get(0)), partitions(made.get(1)), partitions(made.get(2)));
    }

    private static Map<String, Set<Integer>> partitions(JsonNode made) {
        Map<String, Set<Integer>> found = new HashMap<>();
        made.fields().forEachRemaining(entry -> {
            Set<Integer> numbers = new TreeSet<>();
            entry.getValue().forEach(number -> numbers.add(number.asInt()));
            found.put(entry.getKey(), numbers);
        });
        return found;
    }

    private static Object owned(TasksTupleWithEpochs tasks) {
        Map<String, Object> active = new TreeMap<>();
        tasks.activeTasksWithEpochs().forEach((id, epochs) -> active.put(id, new TreeMap<>(epochs)));
        return List.of(active, sorted(tasks.standbyTasks()), sorted(tasks.warmupTasks()));
    }

    private static Map<String, Object> sorted(Map<String, Set<Integer>> tasks) {
        Map<String, Object> found = new TreeMap<>();
        tasks.forEach((id, numbers) -> found.put(id, new TreeSet<>(numbers)));
        return found;
    }

    /** A topology with the topics that exist. */
    private static Object configure(JsonNode made) {
        Map<String, StreamsGroupTopologyValue.Subtopology> subtopologies = new HashMap<>();
        for (JsonNode subtopology : made.get("subtopologies")) {
            subtopologies.put(subtopology.get("id").asText(), subtopology(subtopology));
        }
        Map<String, Object> found = new TreeMap<>();
        ConfiguredTopology configured;
        try {
            configured = InternalTopicManager.configureTopics(
                LOG.logger(StreamsDecisions.class), "g", "m", 0L, new StreamsTopology(1, subtopologies),
                image(made.get("existing")), Time.SYSTEM);
        } catch (RuntimeException error) {
            found.put("error", error.getClass().getSimpleName());
            return found;
        }
        configured.topicConfigurationException().ifPresent(error -> {
            found.put("status", error.status().code());
            found.put("detail", error.getMessage());
        });
        Map<String, Object> counts = new TreeMap<>();
        configured.subtopologies().ifPresent(all -> all.forEach((id, each) -> counts.put(id, each.numberOfTasks())));
        found.put("tasks", counts);
        Map<String, Object> missing = new TreeMap<>();
        configured.internalTopicsToBeCreated().forEach((name, topic) -> missing.put(name, topic.numPartitions()));
        found.put("missing", missing);
        return found;
    }

    private static StreamsGroupTopologyValue.Subtopology subtopology(JsonNode made) {
        StreamsGroupTopologyValue.Subtopology found = new StreamsGroupTopologyValue.Subtopology()
            .setSubtopologyId(made.get("id").asText())
            .setSourceTopics(names(made.get("sources")))
            .setRepartitionSinkTopics(names(made.get("writes")))
            .setRepartitionSourceTopics(topics(made.get("reads")))
            .setStateChangelogTopics(topics(made.get("changelogs")));
        for (JsonNode group : made.get("together")) {
            found.copartitionGroups().add(new StreamsGroupTopologyValue.CopartitionGroup()
                .setSourceTopics(indexes(group.get(0))).setRepartitionSourceTopics(indexes(group.get(1))));
        }
        return found;
    }

    private static List<String> names(JsonNode made) {
        List<String> found = new ArrayList<>();
        made.forEach(name -> found.add(name.asText()));
        return found;
    }

    private static List<Short> indexes(JsonNode made) {
        List<Short> found = new ArrayList<>();
        made.forEach(index -> found.add((short) index.asInt()));
        return found;
    }

    private static List<StreamsGroupTopologyValue.TopicInfo> topics(JsonNode made) {
        List<StreamsGroupTopologyValue.TopicInfo> found = new ArrayList<>();
        made.forEach(topic -> found.add(new StreamsGroupTopologyValue.TopicInfo()
            .setName(topic.get(0).asText()).setPartitions(topic.get(1).asInt())));
        return found;
    }

    private static CoordinatorMetadataImage image(JsonNode existing) {
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(
            StreamsDecisions.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, args) -> {
                if (!method.getName().equals("topicMetadata") || !existing.has((String) args[0])) {
                    return Optional.empty();
                }
                return Optional.of(topic((String) args[0], existing.get((String) args[0]).asInt()));
            });
    }

    private static CoordinatorMetadataImage.TopicMetadata topic(String name, int count) {
        return new CoordinatorMetadataImage.TopicMetadata() {
            public String name() {
                return name;
            }

            public Uuid id() {
                return Uuid.ONE_UUID;
            }

            public int partitionCount() {
                return count;
            }

            public List<String> partitionRacks(int partition) {
                return List.of();
            }
        };
    }

    /** The sticky assignment. */
    private static Object assign(JsonNode made) {
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        made.get("members").fields().forEachRemaining(entry -> {
            TasksTuple had = tasks(entry.getValue().get(1));
            members.put(entry.getKey(), new AssignmentMemberSpec(
                Optional.empty(), Optional.empty(), had.activeTasks(), had.standbyTasks(), Map.of(),
                entry.getValue().get(0).asText(), Map.of(), Map.of(), Map.of()));
        });
        JsonNode subtopologies = made.get("subtopologies");
        List<String> ids = new ArrayList<>();
        subtopologies.fieldNames().forEachRemaining(ids::add);
        Collections.sort(ids);
        TopologyDescriber describer = new TopologyDescriber() {
            public List<String> subtopologies() {
                return ids;
            }

            public int maxNumInputPartitions(String id) {
                return subtopologies.get(id).get(0).asInt();
            }

            public boolean isStateful(String id) {
                return subtopologies.get(id).get(1).asBoolean();
            }
        };
        Map<String, String> configs = Map.of("num.standby.replicas", made.get("replicas").asText());
        Map<String, Object> found = new TreeMap<>();
        new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), describer).members().forEach(
            (id, tasks) -> found.put(id, List.of(sorted(tasks.activeTasks()), sorted(tasks.standbyTasks()))));
        return found;
    }
}
